//! A process that has the port of a server, and passes on what both ends say: it gets no connection to another server, and no
//! word of its own into one.

use std::cell::RefCell;

use types::messages::brick::Verify;
use types::messages::replica::{MetaStatus, Vote};

use super::*;
use crate::sim::{Forgery, Passing, Tampering};

/// A server of this role at its address, which answers every request, and how often it was asked.
async fn start_as(world: &World, address: &str, name: &str, role: Role) -> Rc<Cell<u32>> {
    let listener = world.listen(address).await.unwrap();
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    let handler: Handler = Rc::new(move |call| {
        count.set(count.get() + 1);
        Box::pin(async move { Ok(Answer::new(&Told(7), call.payload)) })
    });
    let identity = Identity { name: name.to_owned(), ..identity(role) };
    world.spawn("test", serve(world.clone(), listener, identity, handler));
    asked
}

/// Passes frames on, both ways, without the key, between a caller and the server at `target`.
async fn relay(world: &World, at: &str, target: &'static str) {
    let listener = world.listen(at).await.unwrap();
    let on = world.clone();
    world.spawn("relay", async move {
        loop {
            let (to_caller, from_caller) = listener.accept().await.unwrap().split();
            let (to_server, from_server) = on.connect(target).await.unwrap().split();
            on.spawn("relay", pass_on(from_caller, to_server));
            on.spawn("relay", pass_on(from_server, to_caller));
        }
    });
}

async fn pass_on(mut from: crate::Receiver, mut to: crate::Sender) {
    while let Ok(Some(frame)) = from.recv().await {
        if to.send(frame).await.is_err() {
            return;
        }
    }
}

/// What each kind of caller asks of each kind of server.
async fn ask_as(world: &World, role: Role, meant: Meant, address: &str) -> Result<(), CallError> {
    let peers = Peers::new(world.clone(), identity(role));
    let (epoch, none) = (Epoch(5), Buf::empty());
    let answer = match meant {
        Meant::Brick => {
            let ask = <Verify as Codec>::sample(&mut 0);
            peers.call_within(1_000_000, address, epoch, &ask, none).await.map(drop)
        }
        Meant::Meta => peers.call_within(1_000_000, address, epoch, &MetaStatus {}, none).await.map(drop),
        Meant::MetaMember => {
            let vote = <Vote as Codec>::sample(&mut 0);
            peers.call_within(1_000_000, address, epoch, &vote, none).await.map(drop)
        }
        Meant::Any => peers.call_within(1_000_000, address, epoch, &Ask(1), none).await.map(drop),
    };
    match answer {
        // The answer is not that of the request, but there is one.
        Err(CallError::BadReply) => Ok(()),
        other => other,
    }
}

const ROLES: [Role; 4] = [Role::Client, Role::Brick, Role::Meta, Role::MetaFollower];

#[test]
fn a_relay_that_leads_to_another_server_is_refused_in_the_handshake() {
    let sim = Simulation::new(1, SimOptions::default());
    let [brick, other, meta, member] = ["brick", "other", "meta", "member"].map(|name| sim.node(name));
    let (squatter, client) = (sim.node("squatter"), sim.node("client"));
    sim.block_on("client", async {
        let targets = [
            ("brick:1", start_as(&brick, "brick:1", "", Role::Brick).await),
            ("other:1", start_as(&other, "other:1", "", Role::Brick).await),
            ("meta:1", start_as(&meta, "meta:1", "meta:1", Role::Meta).await),
            ("member:1", start_as(&member, "member:1", "member:1", Role::MetaFollower).await),
        ];
        for (at, (target, _)) in targets.iter().enumerate() {
            relay(&squatter, &format!("squatter:{}", at + 1), target).await;
        }
        let to = |at: usize| format!("squatter:{}", at + 1);
        for role in ROLES {
            // The squatter has the port of a brick, or of a member: nobody gets through to any other server.
            for meant in [Meant::Brick, Meant::MetaMember] {
                for at in 0..targets.len() {
                    assert_eq!(ask_as(&client, role, meant, &to(at)).await, Err(CallError::Unreachable));
                }
            }
            // He has the port of a metadata server: nobody gets through to a brick.
            for at in 0..2 {
                assert_eq!(ask_as(&client, role, Meant::Meta, &to(at)).await, Err(CallError::Unreachable));
            }
        }
        assert!(targets.iter().all(|(_, asked)| asked.get() == 0), "no request has come through");
        // Without a relay each of them is reached.
        assert_eq!(ask_as(&client, Role::Brick, Meant::Brick, "brick:1").await, Ok(()));
        assert_eq!(ask_as(&client, Role::Client, Meant::Meta, "meta:1").await, Ok(()));
        assert_eq!(ask_as(&client, Role::Meta, Meant::MetaMember, "member:1").await, Ok(()));
        assert!(targets.iter().any(|(_, asked)| asked.get() > 0));
    });
}

#[test]
fn a_relay_to_the_right_server_cannot_add_a_frame_of_its_own() {
    for role in [Role::Brick, Role::Meta, Role::MetaFollower] {
        let sim = Simulation::new(1, SimOptions::default());
        let (server, squatter, client) = (sim.node("server"), sim.node("squatter"), sim.node("client"));
        sim.block_on("client", async {
            // It is called at the relay: so a machine behind an address that is translated.
            let asked = start_as(&server, SERVER, "squatter:1", role).await;
            let listener = squatter.listen("squatter:1").await.unwrap();
            let on = squatter.clone();
            let (taken, has_taken) = async_channel::bounded(1);
            squatter.spawn("relay", async move {
                let (mut to_caller, mut from_caller) = listener.accept().await.unwrap().split();
                let (mut to_server, mut from_server) = on.connect(SERVER).await.unwrap().split();
                for _ in 0..2 {
                    to_server.send(from_caller.recv().await.unwrap().unwrap()).await.unwrap();
                    to_caller.send(from_server.recv().await.unwrap().unwrap()).await.unwrap();
                }
                // The caller is dropped after the handshake. The connection is the squatter's now, as far as the server knows.
                drop((to_caller, from_caller));
                to_server.send(request(&Ask(2))).await.unwrap();
                taken.send(matches!(from_server.recv().await, Ok(Some(_)))).await.unwrap();
            });
            let meant = if role == Role::Brick { Meant::Brick } else { Meant::Meta };
            let caller = if role == Role::MetaFollower { Role::Meta } else { Role::Client };
            assert_eq!(ask_as(&client, caller, meant, "squatter:1").await, Err(CallError::Unreachable));
            assert_eq!(has_taken.recv().await, Ok(false), "the connection has ended");
            assert_eq!(asked.get(), 0);
        });
    }
}

/// The first request, or the first answer, meets somebody on its way. It is never carried out twice, and a changed one never.
#[test]
fn a_frame_that_was_changed_on_its_way_ends_the_connection() {
    for forgery in [Forgery::Flip, Forgery::Repeat, Forgery::LeaveOut, Forgery::Reflect] {
        for is_answer in [false, true] {
            let sim = Simulation::new(1, SimOptions::default());
            let (server, client) = (sim.node("server"), sim.node("client"));
            let left = Cell::new(true);
            sim.tamper(move |Passing { frame, .. }| {
                let kind = if is_answer { Told::KIND } else { Ask::KIND };
                let is_it =
                    frame.header.kind == kind && left.replace(left.get() && frame.header.kind != kind);
                is_it.then_some(Tampering::OnTheWay(forgery))
            });
            sim.block_on("client", async {
                let begun = Rc::new(RefCell::new(Vec::new()));
                let numbers = begun.clone();
                start(&server, move |number| numbers.borrow_mut().push(number)).await;
                let peers = Peers::new(client.clone(), identity(Role::Client));
                let first = peers.call_within(2_000_000, SERVER, Epoch(5), &Ask(2), Buf::from(vec![2; 300]));
                let first = first.await;
                // What comes twice is taken once.
                assert!(matches!(&first, Err(CallError::Unreachable)) || first == told(2), "{first:?}");
                if matches!(forgery, Forgery::Flip | Forgery::LeaveOut | Forgery::Reflect) {
                    assert_eq!(first, Err(CallError::Unreachable), "{forgery:?}");
                }
                // Over a new connection all is well.
                assert_eq!(ask(&peers, 4).await.or(ask(&peers, 4).await), told(4), "{forgery:?}");
                let carried_out = begun.borrow().iter().filter(|number| **number == 2).count();
                let expected = match (forgery, is_answer) {
                    (Forgery::Flip | Forgery::LeaveOut | Forgery::Reflect, false) => 0,
                    _ => 1,
                };
                assert_eq!(carried_out, expected, "{forgery:?}");
            });
        }
    }
}
