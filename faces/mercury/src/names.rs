//! Names of transports and addresses, as users of Mercury write them, and what they mean here.
//!
//! ```text
//! na+sm://          shm://*                 tcp://              tcp://*
//! sm                shm://*                 ofi+tcp://HOST:1    tcp://HOST:1
//! ucx+all://        ucx://*                 ofi+verbs://        ofi+verbs://*
//! auto://*, shm://NAME, ...                 the same
//! ```

/// What an information string asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The class, as `HG_Class_get_name` says it.
    pub(crate) class: String,
    /// The protocol, as `HG_Class_get_protocol` says it.
    pub(crate) protocol: String,
    /// The address to open.
    pub(crate) url: String,
}

/// Schemes of ours, whose addresses are taken as they are.
const OURS: [&str; 7] = ["auto", "shm", "tcp", "self", "ofi", "ucx", "sim"];

/// `class+protocol`, or either; what follows the protocol after `;`, as in `tcp;ofi_rxm`, only
/// says how libfabric is to do it.
fn split(scheme: &str) -> (&str, &str) {
    let scheme = scheme.split(';').next().unwrap_or(scheme);
    scheme.split_once('+').unwrap_or(("", scheme))
}

/// Which scheme of ours a class and a protocol are.
fn scheme(class: &str, protocol: &str) -> Option<String> {
    Some(match (class, protocol) {
        ("" | "na", "sm" | "shm") | ("ofi", "shm") | ("ucx", "sm") => "shm".to_owned(),
        ("" | "na" | "ofi" | "bmi", "tcp" | "sockets") | ("ucx", "tcp") => "tcp".to_owned(),
        ("", "verbs" | "cxi" | "psm2" | "psm3" | "opx" | "gni" | "efa") => {
            format!("ofi+{protocol}")
        }
        ("ofi", _) => format!("ofi+{protocol}"),
        ("ucx", "all") => "ucx".to_owned(),
        ("ucx", _) => format!("ucx+{protocol}"),
        ("", ours) if OURS.contains(&ours) => ours.to_owned(),
        _ => return None,
    })
}

/// Reads an information string, as of `HG_Init`. `subnet` is the network to listen on, if the
/// string names none. `both`: shared memory, too, for peers of this node.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub(crate) fn open(text: &str, subnet: Option<&str>, both: bool) -> Result<Named, String> {
    let (front, rest) = text.split_once("://").unwrap_or((text, ""));
    let (class, protocol) = split(front);
    if class.is_empty() && OURS.contains(&protocol) && text.contains("://") && !rest.is_empty() {
        let url = if both && protocol == "tcp" { both_ways(text) } else { text.to_owned() };
        return Ok(Named { class: "petasos".to_owned(), protocol: protocol.to_owned(), url });
    }
    let scheme = scheme(class, protocol).ok_or_else(|| {
        format!("`{text}` names no transport: na+sm, tcp, ofi+tcp, ofi+verbs, ucx+all, auto, ...")
    })?;
    // A device may come first, as in `mlx5_0/10.0.0.1:5000`; networks are found by their address.
    let host = rest.rsplit('/').next().unwrap_or(rest);
    let host = match subnet.filter(|_| host.is_empty() && scheme != "shm") {
        Some(net) => net.split('/').next().unwrap_or(net),
        None => host,
    };
    let url = match (scheme.as_str(), host) {
        ("shm" | "self", "") => format!("{scheme}://*"),
        ("shm" | "self", name) => format!("{scheme}://{name}"),
        (_, "") => format!("{scheme}://*"),
        (_, host) if host.contains(':') && !host.ends_with(']') => format!("{scheme}://{host}"),
        (_, host) => format!("{scheme}://{host}:0"),
    };
    let url = if both && scheme != "shm" { both_ways(&url) } else { url };
    let class = match class {
        "" if protocol == "sm" || protocol == "shm" => "na",
        "" if protocol == "tcp" => "tcp",
        "" => "petasos",
        class => class,
    };
    Ok(Named { class: class.to_owned(), protocol: protocol.to_owned(), url })
}

/// The same network, and shared memory to peers of this node.
fn both_ways(url: &str) -> String {
    match url.split_once("://") {
        Some(("auto", _)) => url.to_owned(),
        _ => format!("auto://shm://*,{url}"),
    }
}

/// Reads the name of a peer, as of `HG_Addr_lookup2`: an address of ours, or one as Mercury has it.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub(crate) fn peer(text: &str) -> Result<String, String> {
    let (front, rest) = text.split_once("://").ok_or_else(|| format!("`{text}` has no scheme"))?;
    let (class, protocol) = split(front);
    if rest.is_empty() {
        return Err(format!("`{text}` names no peer"));
    }
    let ours = matches!(class, "" | "ofi" | "ucx") && scheme(class, protocol).is_none();
    let scheme = scheme(class, protocol).or_else(|| ours.then(|| front.to_owned()));
    let scheme = scheme.ok_or_else(|| format!("`{text}` is of no transport that is known"))?;
    Ok(format!("{scheme}://{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> String {
        open(text, None, false).unwrap().url
    }

    #[test]
    fn names_of_mercury_mean_transports_of_ours() {
        for (text, expected) in [
            ("na+sm", "shm://*"),
            ("na+sm://", "shm://*"),
            ("sm://", "shm://*"),
            ("na+sm://place", "shm://place"),
            ("tcp", "tcp://*"),
            ("ofi+tcp://", "tcp://*"),
            ("ofi+tcp;ofi_rxm://10.0.0.1:5000", "tcp://10.0.0.1:5000"),
            ("ofi+tcp://eth0/10.0.0.1", "tcp://10.0.0.1:0"),
            ("ofi+verbs://", "ofi+verbs://*"),
            ("ofi+verbs;ofi_rxm://mlx5_0/10.0.0.1:7", "ofi+verbs://10.0.0.1:7"),
            ("ucx+all://", "ucx://*"),
            ("ucx+rc_x://h:1", "ucx+rc_x://h:1"),
            ("auto://*", "auto://*"),
            ("auto://h:4", "auto://h:4"),
            ("shm://mine", "shm://mine"),
            ("auto", "auto://*"),
        ] {
            assert_eq!(url(text), expected, "{text}");
        }
        let named = open("na+sm://", None, false).unwrap();
        assert_eq!((&*named.class, &*named.protocol), ("na", "sm"));
        let named = open("ofi+tcp://", None, false).unwrap();
        assert_eq!((&*named.class, &*named.protocol), ("ofi", "tcp"));
        assert!(open("smoke+signals://", None, false).is_err() && open("", None, false).is_err());
    }

    #[test]
    fn shared_memory_beside_a_network() {
        let url = |text| open(text, Some("192.168.1.4/24"), true).unwrap().url;
        assert_eq!(url("ofi+tcp://"), "auto://shm://*,tcp://192.168.1.4:0");
        assert_eq!(url("na+sm"), "shm://*");
        assert_eq!(url("tcp://h:1"), "auto://shm://*,tcp://h:1");
        assert_eq!(url("auto://h:1"), "auto://h:1");
    }

    #[test]
    fn peers() {
        for (text, expected) in [
            ("ofi+tcp;ofi_rxm://10.0.0.1:5000", "tcp://10.0.0.1:5000"),
            ("na+sm://17-0", "shm://17-0"),
            ("auto://9f3c/shm://a,tcp://b:1", "auto://9f3c/shm://a,tcp://b:1"),
            ("tcp://[::1]:4", "tcp://[::1]:4"),
            ("ofi+verbs://10.0.0.1:5000", "ofi+verbs://10.0.0.1:5000"),
        ] {
            assert_eq!(peer(text).unwrap(), expected);
        }
        assert!(peer("nonsense").is_err() && peer("tcp://").is_err() && peer("a+b://c").is_err());
    }
}
