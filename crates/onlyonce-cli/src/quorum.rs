//! `onlyonce store quorum`: the servers of a quorum, and admitting or replacing one of them.

use clap::Subcommand;
use onlyonce_stores::redis::{QuorumMember, RedisQuorum, Standing};
use serde_json::{Value, json};

use crate::said::{give, say};
use crate::source::SourceError;

/// What to do with the servers of a quorum.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Show which servers vote
    Status,
    /// Let a server vote that is new or has lost its data, after all records were written without it
    Admit {
        /// The server, as `host:port`
        server: String,
    },
    /// Change the set of servers to that of another URL: one may leave, and one may come
    Replace {
        /// The URL with the new set of servers
        #[arg(long, value_name = "URL")]
        to: String,
    },
}

/// Runs the command on the quorum at `url`.
pub(crate) async fn act(url: &str, action: &Action, json: bool) -> Result<(), SourceError> {
    match action {
        Action::Status => status(&RedisQuorum::open(url).await?, json).await,
        Action::Admit { server } => {
            let quorum = RedisQuorum::open(url).await?;
            let records = quorum.admit(server).await?;
            say(format_args!(
                "{server} votes now; {records} registers were looked at before"
            ));
            status(&quorum, json).await
        }
        Action::Replace { to } => {
            let quorum = RedisQuorum::replace(url, to).await?;
            say(format_args!(
                "the set is changed: start every process with the new URL, and admit the server that came"
            ));
            status(&quorum, json).await
        }
    }
}

async fn status(quorum: &RedisQuorum, json: bool) -> Result<(), SourceError> {
    let members = quorum.members().await?;
    if json {
        let members: Vec<Value> = members.iter().map(as_json).collect();
        give(format_args!("{}", json!({ "servers": members })));
        return Ok(());
    }
    for member in members {
        let standing = told(&member.standing);
        give(format_args!("{:<24} {standing}", member.seat));
    }
    Ok(())
}

fn told(standing: &Standing) -> String {
    match standing {
        Standing::Votes => "votes".to_owned(),
        Standing::Waits { waited } => format!(
            "waits to be admitted, for {} s: it is new or has lost its data",
            waited.as_secs()
        ),
        Standing::Out(why) => format!("does not vote: {why}"),
        _ => "unknown".to_owned(),
    }
}

fn as_json(member: &QuorumMember) -> Value {
    let votes = member.standing == Standing::Votes;
    json!({"server": member.seat, "votes": votes, "standing": told(&member.standing)})
}
