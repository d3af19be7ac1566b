//! The URL of a disk, in libnbd's form: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`.
//!
//! Source: `doc/uri.md` of the NBD project. Other forms that it allows (TLS, users, vsock) are refused.

use std::io;

use crate::nbd::consts::NAME_MAX;

/// The default port of NBD servers (IANA).
const PORT: u16 = 10_809;

/// A server and the name of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Url {
    /// The text of the URL, for messages.
    pub(super) text: String,
    pub(super) endpoint: Endpoint,
    pub(super) export: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Endpoint {
    /// `host:port`.
    Tcp(String),
    /// A socket in the file system.
    Unix(String),
}

/// Whether `text` is a URL and not a path.
pub(crate) fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.starts_with("nbd"))
}

impl Url {
    pub(super) fn parse(text: &str) -> io::Result<Url> {
        let wrong = |what: &str| {
            let forms = "nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH";
            io::Error::new(io::ErrorKind::InvalidInput, format!("{text}: {what}; give {forms}"))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it is no URL"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        let decoded =
            |text: &str| unescape(text).ok_or_else(|| wrong("a % is not followed by two hex digits"));
        let endpoint = match scheme {
            "nbd" if !query.is_empty() => return Err(wrong("a host has no parameters")),
            "nbd" => Endpoint::Tcp(address(host).ok_or_else(|| wrong("host or port are none"))?),
            "nbd+unix" if !host.is_empty() => return Err(wrong("a socket has no host: three slashes")),
            "nbd+unix" => {
                let path =
                    query.strip_prefix("socket=").filter(|path| !path.is_empty() && !path.contains('&'));
                Endpoint::Unix(decoded(path.ok_or_else(|| wrong("the socket is missing"))?)?)
            }
            _ => return Err(wrong("this scheme is not known here (there is no TLS)")),
        };
        let export = decoded(export)?;
        if export.len() > NAME_MAX {
            return Err(wrong("the export's name is too long"));
        }
        Ok(Url { text: text.to_owned(), endpoint, export })
    }
}

/// `host:port`, from a host with or without a port.
fn address(host: &str) -> Option<String> {
    // The colons of an IPv6 address are within brackets.
    let (name, port) = match host.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
        Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
        None => (host, PORT),
    };
    let bracketed = name.starts_with('[') && name.ends_with(']');
    let sound = !name.is_empty() && !name.contains('@') && (bracketed || !name.contains([':', '[', ']']));
    sound.then(|| format!("{name}:{port}"))
}

/// Decodes `%xx`. `None` if that fails, or the result is not UTF-8.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // `from_str_radix` would take a sign.
        let digits = Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
