//! The schedulers of the kernel and the policies of a direct brick: what the workloads run under.

/// Who puts the requests in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The kernel's block layer, below ext4.
    Kernel,
    /// The queue of a direct brick, below a mount.
    Shoal,
    /// The kernel's block layer, below such a brick, which takes requests as they come: what Shoal's policies would have to beat if
    /// nothing else were different. (Without a scheduler of the kernel that is the brick's `noop`.)
    BelowBrick,
}

/// One way to order requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct System {
    /// Who does it.
    pub side: Side,
    /// The name of the scheduler or of the policy.
    pub policy: &'static str,
}

/// The kernel's schedulers, and the modules that have them.
pub const KERNEL: [(&str, &str); 4] =
    [("none", ""), ("mq-deadline", "mq-deadline"), ("kyber", "kyber-iosched"), ("bfq", "bfq")];

const fn shoal(policy: &'static str) -> System {
    System { side: Side::Shoal, policy }
}

const fn below_brick(at: usize) -> System {
    System { side: Side::BelowBrick, policy: KERNEL[at].0 }
}

const fn kernel(at: usize) -> System {
    System { side: Side::Kernel, policy: KERNEL[at].0 }
}

/// The policy that looks for its priority.
pub const AUTO: System = shoal("slq-auto");
/// A brick's order if nobody says otherwise.
pub const NOOP: System = shoal("noop");

impl System {
    /// All, the kernel's first.
    pub const ALL: [System; 14] = [
        kernel(0),
        kernel(1),
        kernel(2),
        kernel(3),
        NOOP,
        shoal("deadline"),
        shoal("bfq"),
        shoal("kyber"),
        shoal("slq-nearest"),
        shoal("slq-lisf-first"),
        AUTO,
        below_brick(1),
        below_brick(2),
        below_brick(3),
    ];

    /// Those of one side.
    pub fn of(side: Side) -> impl Iterator<Item = System> {
        System::ALL.into_iter().filter(move |system| system.side == side)
    }

    /// Its name on the page.
    pub fn title(self) -> String {
        match self.side {
            Side::Kernel => format!("kernel {}", self.policy),
            Side::Shoal => format!("Shoal {}", self.policy),
            Side::BelowBrick => format!("Shoal over kernel {}", self.policy),
        }
    }

    /// The one with this name.
    pub fn named(title: &str) -> Option<System> {
        System::ALL.into_iter().find(|system| system.title() == title)
    }

    /// All, in the order of a turn: turned round by some, and every second time backwards, so that none always comes after the
    /// same one.
    pub fn in_turn(turn: u32) -> Vec<System> {
        let mut order = System::ALL.to_vec();
        order.rotate_left(turn as usize * 4 % System::ALL.len());
        if turn % 2 == 1 {
            order.reverse();
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_its_name_and_its_place_in_each_turn() {
        for system in System::ALL {
            assert_eq!(System::named(&system.title()), Some(system));
        }
        let count = |side| System::of(side).count();
        assert_eq!([Side::Kernel, Side::Shoal, Side::BelowBrick].map(count), [4, 7, 3]);
        for turn in 0..6 {
            let order = System::in_turn(turn);
            assert!(
                System::ALL.iter().all(|system| order.contains(system)) && order.len() == System::ALL.len()
            );
            assert_ne!(order, System::in_turn(turn + 1));
        }
    }
}
