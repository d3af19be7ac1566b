//! Interfaces, addresses and routes of this machine.

use std::net::Ipv4Addr;

use anyhow::Context;
use layout::topology::AddressRange;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::LinkAddr;

/// The routes of the kernel's main table.
const ROUTES: &str = "/proc/net/route";

/// An interface.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) is_up: bool,
    /// Whether a cable is in it whose other end is up.
    pub(super) has_carrier: bool,
    /// Its number and hardware address; none if it has none.
    pub(super) link: Option<LinkAddr>,
    /// Its addresses, each with a prefix.
    pub(super) addresses: Vec<(Ipv4Addr, u8)>,
}

/// A route to a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Route {
    pub(super) to: AddressRange,
    pub(super) interface: String,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) interfaces: Vec<Interface>,
    pub(super) routes: Vec<Route>,
}

impl Machine {
    /// Asks the kernel.
    pub(super) fn read() -> anyhow::Result<Machine> {
        let mut interfaces: Vec<Interface> = Vec::new();
        for address in getifaddrs().context("cannot list the interfaces of this machine")? {
            // A label of an address, as in `eth0:1`, is no interface.
            let name = address.interface_name.split(':').next().unwrap_or_default();
            let at = interfaces.iter().position(|interface| interface.name == name);
            let at = at.unwrap_or_else(|| {
                interfaces.push(Interface::new(name, address.flags));
                interfaces.len() - 1
            });
            interfaces[at].add(&address);
        }
        // A kernel without IPv4 has no such file, and no such routes.
        let routes = std::fs::read_to_string(ROUTES).unwrap_or_default();
        Ok(Machine { interfaces, routes: parse_routes(&routes) })
    }

    /// An interface by its name.
    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The interface that has an address.
    pub(super) fn holder(&self, address: Ipv4Addr) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.addresses.iter().any(|(own, _)| *own == address))
    }

    /// What uses addresses of a range: an interface or a route. A route to everything does not count.
    pub(super) fn use_of(&self, range: AddressRange) -> Option<String> {
        for interface in &self.interfaces {
            let within =
                |(address, prefix): &&(Ipv4Addr, u8)| AddressRange::around(*address, *prefix).overlaps(range);
            if let Some((address, prefix)) = interface.addresses.iter().find(within) {
                return Some(format!("{} has {address}/{prefix}", interface.name));
            }
        }
        let route = self.routes.iter().find(|route| route.to.prefix() > 0 && route.to.overlaps(range));
        route.map(|route| format!("a route to {} leads through {}", route.to, route.interface))
    }
}

impl Interface {
    fn new(name: &str, flags: InterfaceFlags) -> Interface {
        Interface {
            name: name.to_owned(),
            is_up: flags.contains(InterfaceFlags::IFF_UP),
            has_carrier: flags.contains(InterfaceFlags::IFF_RUNNING),
            link: None,
            addresses: Vec::new(),
        }
    }

    fn add(&mut self, entry: &InterfaceAddress) {
        let Some(address) = &entry.address else { return };
        if let Some(address) = address.as_sockaddr_in() {
            let mask = entry.netmask.as_ref().and_then(|mask| mask.as_sockaddr_in().copied());
            let prefix = mask.map_or(32, |mask| mask.ip().to_bits().leading_ones() as u8);
            self.addresses.push((address.ip(), prefix));
        } else if let Some(link) = address.as_link_addr() {
            self.link = Some(*link);
        }
    }
}

/// Reads the kernel's table: hexadecimal numbers in the machine's byte order.
fn parse_routes(text: &str) -> Vec<Route> {
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let [to, mask] = [number(1)?, number(7)?].map(|number| u32::from_be_bytes(number.to_ne_bytes()));
        let to = AddressRange::around(Ipv4Addr::from_bits(to), mask.leading_ones() as u8);
        Some(Route { to, interface: (*words.first()?).to_owned() })
    };
    text.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a little-endian machine shows it.
    #[cfg(target_endian = "little")]
    const TABLE: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
wg0\t0000630A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";

    #[cfg(target_endian = "little")]
    #[test]
    fn routes_are_read() {
        let routes = parse_routes(TABLE);
        let words: Vec<String> =
            routes.iter().map(|route| format!("{} {}", route.to, route.interface)).collect();
        assert_eq!(words, ["0.0.0.0/0 eth0", "10.99.0.0/24 wg0"]);
        let machine = Machine { routes, ..Machine::default() };
        let used = |range: &str| machine.use_of(range.parse().expect("a range"));
        assert_eq!(used("10.99.0.0/16").as_deref(), Some("a route to 10.99.0.0/24 leads through wg0"));
        assert_eq!(used("10.98.0.0/16"), None);
    }

    #[test]
    fn loopback_is_found() {
        let machine = Machine::read().expect("this machine has interfaces");
        let holder = machine.holder(Ipv4Addr::LOCALHOST).expect("127.0.0.1 is somebody's");
        assert!(holder.is_up && holder.addresses.contains(&(Ipv4Addr::LOCALHOST, 8)), "{holder:?}");
        assert!(machine.interface(&holder.name).is_some());
        let range = AddressRange::around(Ipv4Addr::LOCALHOST, 16);
        assert_eq!(machine.use_of(range), Some(format!("{} has 127.0.0.1/8", holder.name)));
    }
}
