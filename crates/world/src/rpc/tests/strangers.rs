//! Callers that are turned away, and what they hear.

use super::*;

#[test]
fn strangers_hear_why() {
    with_server(async |_, client, peers| {
        let with = |cluster, key| {
            Peers::new(client.clone(), Identity { cluster, key, role: Role::Client, name: String::new() })
        };
        let stranger = with(CLUSTER, Key::OPEN);
        assert_eq!(ask(&stranger, 2).await, Err(CallError::WrongKey));
        let stranger = with(ClusterId([8; 16]), Key([9; 32]));
        assert_eq!(ask(&stranger, 2).await, Err(CallError::WrongCluster { theirs: CLUSTER }));
        let newcomer = with(ClusterId::default(), Key([9; 32]));
        assert_eq!(newcomer.cluster(), ClusterId::default());
        assert_eq!(ask(&newcomer, 2).await, told(2));
        assert_eq!(newcomer.cluster(), CLUSTER);
        assert_eq!(ask(&peers, 2).await, told(2));
    });
}

/// Sends frames as they are; what comes back to the last one.
async fn say(client: &World, frames: Vec<Frame>) -> Option<Frame> {
    let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
    let count = frames.len();
    let mut last = None;
    for frame in frames {
        let _ = sender.send(frame).await;
    }
    for _ in 0..count {
        last = receiver.recv().await.ok()?;
        last.as_ref()?;
    }
    last
}

fn refused(frame: Option<Frame>) -> Option<Refusal> {
    let frame = frame?;
    assert!(frame.header.flags.is_refusal());
    assert_eq!(frame.header.cluster, ClusterId::default(), "a stranger does not learn the cluster");
    Some(wire::from_bytes::<Refused>(&frame.record).unwrap().reason)
}

#[test]
fn a_handshake_out_of_order_is_refused() {
    with_server(async |_, client, peers| {
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            role: Role::Client,
            nonce: [3; 32],
            meant: Meant::Any,
            address: SERVER.to_owned(),
        };
        let newer = Hello { version_min: VERSION + 1, version_max: VERSION + 9, ..hello.clone() };
        // It hears which version is the nearest, as one that is older does.
        let older = Hello { version_min: 0, version_max: VERSION_MIN - 1, ..hello.clone() };
        for (other, nearest) in [(newer, VERSION), (older, VERSION_MIN)] {
            let answer = say(client, vec![request(&other)]).await.expect("a welcome");
            let welcome: types::messages::session::Welcome = wire::from_bytes(&answer.record).unwrap();
            assert_eq!((answer.header.cluster, welcome.version), (ClusterId::default(), nearest));
            let proof = types::messages::session::Prove { proof: [1; 32] };
            assert!(say(client, vec![request(&other), request(&proof)]).await.is_none(), "nothing follows");
        }
        let mut newer = request(&hello);
        newer.header.version = VERSION + 1;
        assert_eq!(refused(say(client, vec![newer]).await), Some(Refusal::Unsupported));
        assert_eq!(refused(say(client, vec![request(&Ask(1))]).await), Some(Refusal::Malformed));
        let forged = types::messages::session::Prove { proof: [1; 32] };
        let answer = say(client, vec![request(&hello), request(&forged)]).await;
        assert_eq!(refused(answer), Some(Refusal::AccessDenied));
        assert_eq!(ask(&peers, 2).await, told(2));
    });
}

#[test]
fn garbage_and_silence_are_dropped() {
    with_server(async |sim, client, peers| {
        for round in 0..50 {
            let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
            let mut bytes = vec![0; 1 + round * 7];
            client.random_bytes(&mut bytes);
            if round % 2 == 0 {
                let magic = bytes.len().min(4);
                bytes[..magic].copy_from_slice(&wire::MAGIC[..magic]);
            }
            sender.send_bytes(bytes).await.unwrap();
            assert!(!matches!(receiver.recv().await, Ok(Some(_))));
        }
        let (_silent, mut receiver) = client.connect(SERVER).await.unwrap().split();
        let before = sim.now();
        assert!(!matches!(receiver.recv().await, Ok(Some(_))));
        // The server's clock for it started while our connect was on its way back.
        assert!((4_900_000..6_000_000).contains(&(sim.now() - before)));
        assert_eq!(ask(&peers, 2).await, told(2));
    });
}
