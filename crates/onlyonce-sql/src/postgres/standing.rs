//! What a server says of itself, and which of several servers the records are written to.

use sqlx::postgres::PgConnection;
use sqlx::{Executor, Row};

/// Asked of every server. A promotion begins a new timeline, which stands in the names of the log's files;
/// a server in recovery writes none.
const STANDING: &str = "SELECT pg_is_in_recovery() AS follows,
    current_setting('transaction_read_only') = 'on' AS reads_only,
    (SELECT system_identifier FROM pg_control_system()) AS cluster,
    CASE WHEN NOT pg_is_in_recovery() THEN
        ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8
    END AS timeline";

/// What a server is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The identity that a primary has in common with its standbys.
    pub(super) cluster: i64,
    pub(super) role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// In recovery.
    Standby,
    /// A primary whose sessions begin read-only: somebody has closed it to writes.
    ReadOnly,
    /// A primary, or one that was demoted and does not know it: the newer timeline decides.
    Primary { timeline: i64 },
}

/// The server that takes writes, as long as no newer timeline is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Which one, in the order given.
    pub(super) host: usize,
    pub(super) timeline: i64,
    pub(super) cluster: i64,
}

impl Standing {
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let row = connection.fetch_one(STANDING).await?;
        let follows: bool = row.try_get("follows")?;
        let reads_only: bool = row.try_get("reads_only")?;
        let timeline: Option<i64> = row.try_get("timeline")?;
        let role = match timeline {
            Some(timeline) if !follows && !reads_only => Role::Primary { timeline },
            Some(_) if !follows => Role::ReadOnly,
            Some(_) | None => Role::Standby,
        };
        Ok(Self {
            cluster: row.try_get("cluster")?,
            role,
        })
    }

    /// Whether it is still what was chosen.
    pub(super) fn confirms(self, chosen: Chosen) -> bool {
        let Chosen {
            timeline, cluster, ..
        } = chosen;
        self.cluster == cluster && self.role == Role::Primary { timeline }
    }

    /// Why this server is not written to, if it is not; `newest` is the newest timeline known.
    pub(super) fn refusal(self, cluster: i64, newest: i64) -> Option<String> {
        if self.cluster != cluster {
            return Some("is of another cluster".to_owned());
        }
        match self.role {
            Role::Standby => Some("is a standby".to_owned()),
            Role::ReadOnly => Some("is read-only".to_owned()),
            Role::Primary { timeline } if timeline < newest => Some(format!(
                "was demoted: it is on timeline {timeline}, and {newest} has begun"
            )),
            Role::Primary { .. } => None,
        }
    }
}

/// Of servers in the order given, the primary on the newest timeline; nothing if none is on one as new
/// as `former`, the choice before. That one is kept as long as nothing speaks against it.
pub(super) fn choose(seen: &[Option<Standing>], former: Option<Chosen>) -> Option<Chosen> {
    let cluster = cluster(seen, former)?;
    let primaries = seen.iter().enumerate().filter_map(|(host, standing)| {
        let standing = (*standing)?;
        let Role::Primary { timeline } = standing.role else {
            return None;
        };
        (standing.cluster == cluster).then_some(Chosen {
            host,
            timeline,
            cluster,
        })
    });
    let newest = primaries.clone().map(|it| it.timeline).max()?;
    if former.is_some_and(|former| newest < former.timeline) {
        return None;
    }
    let mut newest = primaries.filter(|it| it.timeline == newest);
    let first = newest.clone().next();
    newest.find(|it| Some(*it) == former).or(first)
}

/// The cluster that the servers belong to: the one they had before, or that of all that answer.
pub(super) fn cluster(seen: &[Option<Standing>], former: Option<Chosen>) -> Option<i64> {
    if let Some(former) = former {
        return Some(former.cluster);
    }
    let mut clusters = seen.iter().flatten().map(|standing| standing.cluster);
    let first = clusters.next()?;
    clusters.all(|it| it == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDBY: Role = Role::Standby;

    fn primary(timeline: i64) -> Role {
        Role::Primary { timeline }
    }

    fn seen(roles: &[Role]) -> Vec<Option<Standing>> {
        let standing = |role: &Role| {
            Some(Standing {
                cluster: 7,
                role: *role,
            })
        };
        roles.iter().map(standing).collect()
    }

    fn on(host: usize, timeline: i64) -> Chosen {
        Chosen {
            host,
            timeline,
            cluster: 7,
        }
    }

    #[test]
    fn the_first_primary_in_the_order_given_is_chosen() {
        assert_eq!(
            choose(&seen(&[STANDBY, primary(1), primary(1)]), None),
            Some(on(1, 1))
        );
        assert_eq!(choose(&seen(&[STANDBY, Role::ReadOnly]), None), None);
        assert_eq!(choose(&[None, None], None), None);
    }

    #[test]
    fn of_two_primaries_the_one_on_the_newer_timeline_is_chosen() {
        let both = seen(&[primary(1), primary(2)]);

        assert_eq!(choose(&both, None), Some(on(1, 2)));
        assert_eq!(choose(&both, Some(on(0, 1))), Some(on(1, 2)));
    }

    #[test]
    fn a_demoted_primary_is_not_gone_back_to() {
        let old_alone = [seen(&[primary(1)])[0], None];

        assert_eq!(choose(&old_alone, Some(on(1, 2))), None);
        assert_eq!(choose(&old_alone, Some(on(0, 1))), Some(on(0, 1)));
    }

    #[test]
    fn a_choice_is_kept_while_nothing_speaks_against_it() {
        let both = seen(&[primary(2), primary(2)]);

        assert_eq!(choose(&both, Some(on(1, 2))), Some(on(1, 2)));
        assert_eq!(choose(&[both[0], None], Some(on(1, 2))), Some(on(0, 2)));
    }

    #[test]
    fn servers_of_two_clusters_are_no_choice() {
        let mut mixed = seen(&[primary(1), primary(5)]);
        mixed[1] = Some(Standing {
            cluster: 8,
            role: primary(5),
        });

        assert_eq!(choose(&mixed, None), None);
        assert_eq!(choose(&mixed, Some(on(0, 1))), Some(on(0, 1)));
    }

    #[test]
    fn a_refusal_says_why() {
        let [standby, old] = [STANDBY, primary(1)].map(|role| Standing { cluster: 7, role });

        assert_eq!(standby.refusal(7, 1).unwrap(), "is a standby");
        assert!(
            old.refusal(7, 2)
                .unwrap()
                .contains("timeline 1, and 2 has begun")
        );
        assert_eq!(old.refusal(7, 1), None);
        assert_eq!(old.refusal(8, 1).unwrap(), "is of another cluster");
    }
}
