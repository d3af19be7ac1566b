//! Which clients are allowed. This is needed because NFS trusts what a client says about its users.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A range of addresses, `ADDRESS/BITS`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("`{text}` is neither an address nor a range of addresses such as 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(wrong()) } else { Ok(Network { address, bits }) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                ours.to_bits() & mask == theirs.to_bits() & mask
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                ours.to_bits() & mask == theirs.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// Which clients are allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AllowList {
    /// Clients of this machine.
    Local,
    /// Clients with one of these addresses.
    Networks(Vec<Network>),
}

impl AllowList {
    /// The list for a gate that listens at `listen`; `None` if other machines could connect and no clients were
    /// named.
    pub(super) fn of(listen: &[SocketAddr], allow: &[Network]) -> Option<AllowList> {
        match allow {
            [] => listen
                .iter()
                .all(|address| address.ip().to_canonical().is_loopback())
                .then_some(AllowList::Local),
            _ => Some(AllowList::Networks(allow.to_vec())),
        }
    }

    /// Whether a client is allowed.
    pub(super) fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self {
            AllowList::Local => client.is_loopback(),
            AllowList::Networks(networks) => networks.iter().any(|network| network.contains(client)),
        }
    }
}

/// Resolves `listen` to addresses.
pub(super) fn addresses(listen: &str) -> std::io::Result<Vec<SocketAddr>> {
    listen.to_socket_addrs().map(Iterator::collect)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a range")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn ranges_hold_their_addresses() {
        assert!(network("10.0.0.0/8").contains(address("10.200.3.4")));
        assert!(!network("10.0.0.0/8").contains(address("11.0.0.0")));
        assert!(
            network("10.1.2.3").contains(address("10.1.2.3"))
                && !network("10.1.2.3").contains(address("10.1.2.2"))
        );
        assert!(
            network("0.0.0.0/0").contains(address("8.8.8.8"))
                && !network("0.0.0.0/0").contains(address("::1"))
        );
        assert!(network("10.0.0.0/8").contains(address("::ffff:10.9.9.9")));
        assert!(
            network("fd00::/8").contains(address("fdab::1"))
                && !network("fd00::/8").contains(address("fe80::1"))
        );
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.0/", "host", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn strangers_are_named_or_stay_out() {
        let local = addresses("127.0.0.1:2049").expect("an address");
        let open = addresses("0.0.0.0:2049").expect("an address");
        let allow_list = AllowList::of(&local, &[]).expect("this machine");
        assert!(allow_list.admits(address("127.0.0.1")) && !allow_list.admits(address("10.0.0.1")));
        assert_eq!(AllowList::of(&open, &[]), None);
        let allow_list = AllowList::of(&open, &[network("10.0.0.0/24")]).expect("those");
        assert!(allow_list.admits(address("10.0.0.7")) && !allow_list.admits(address("127.0.0.1")));
    }
}
