//! The servers that a URL names: one, or the nodes of a cluster.

use onlyonce_storekit::OpenError;

/// No cluster of this kind has more nodes that are worth naming.
const HOSTS_MAX: usize = 9;

/// `url` once for each host that it names, in its order: `mysql://user:pw@a:3306,b/db` is one URL
/// for `a:3306` and one for `b`.
pub(super) fn each(url: &str) -> Result<Vec<String>, OpenError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Ok(vec![url.to_owned()]);
    };
    let (address, query) = match rest.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (rest, String::new()),
    };
    // A password may have any character, also those that should have been escaped.
    let (login, place) = match address.rsplit_once('@') {
        Some((login, place)) => (format!("{login}@"), place),
        None => (String::new(), address),
    };
    let (hosts, path) = match place.split_once('/') {
        Some((hosts, path)) => (hosts, format!("/{path}")),
        None => (place, String::new()),
    };
    let hosts: Vec<_> = hosts.split(',').collect();
    if hosts.len() == 1 {
        return Ok(vec![url.to_owned()]);
    }
    check(&hosts, &query)?;
    let one = |host: &&str| format!("{scheme}://{login}{host}{path}{query}");
    Ok(hosts.iter().map(one).collect())
}

fn check(hosts: &[&str], query: &str) -> Result<(), OpenError> {
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(OpenError::url("a host is missing between two commas"));
    }
    if hosts.len() > HOSTS_MAX {
        let why = format!("it names more than {HOSTS_MAX} hosts");
        return Err(OpenError::url(&why));
    }
    for (n, host) in hosts.iter().enumerate() {
        if hosts[..n].contains(host) {
            return Err(OpenError::url("it names a host twice"));
        }
    }
    if url::form_urlencoded::parse(query.trim_start_matches('?').as_bytes())
        .any(|(name, _)| name == "socket")
    {
        let why = "is a place on this machine, and the URL names several hosts";
        return Err(OpenError::option("socket", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn a_url_of_several_hosts_is_one_for_each_in_its_order() {
        for (url, ones) in [
            ("mysql://host/db?a=b", vec!["mysql://host/db?a=b"]),
            (
                "mariadb://u:p@b:2,a,[::1]:3/db?x=a,b",
                vec![
                    "mariadb://u:p@b:2/db?x=a,b",
                    "mariadb://u:p@a/db?x=a,b",
                    "mariadb://u:p@[::1]:3/db?x=a,b",
                ],
            ),
            (
                "mysql://u:p@,/x@a,b",
                vec!["mysql://u:p@,/x@a", "mysql://u:p@,/x@b"],
            ),
        ] {
            assert_eq!(each(url).expect("a right URL"), ones, "{url}");
        }
    }

    #[test]
    fn a_list_of_hosts_with_a_slip_is_refused() {
        for wrong in [
            "mysql://a,,b/db",
            "mysql://a,a/db",
            "mysql://a,b/db?socket=/run/s",
            "mysql://1,2,3,4,5,6,7,8,9,10/db",
        ] {
            assert!(each(wrong).is_err(), "{wrong}");
        }
    }
}
