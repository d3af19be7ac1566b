//! What a test makes of a frame is what arrives, and a cut rail is the only one that is cut.

use super::*;
use crate::sim::{Fault, Passing, Tampering};

/// The next number that arrives, with its payload.
async fn next(receiver: &mut crate::Receiver) -> (u64, Vec<u8>) {
    let frame = receiver.recv().await.unwrap().unwrap();
    (frame.header.request, frame.payload.to_vec())
}

#[test]
fn a_frame_is_exchanged_answered_or_late() {
    let sim = calm(1);
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.tamper(|Passing { from, to, frame: sent }| {
        assert!((*from, *to) == ("a", "b") || (*from, *to) == ("b", "a"));
        match sent.header.request {
            1 => Some(Tampering::Payload(Buf::copy_of(b"other"))),
            2 => Some(Tampering::Record(vec![9])),
            3 => Some(Tampering::Answer(frame(33, &[]))),
            4 => Some(Tampering::Late(50_000)),
            _ => None,
        }
    });
    sim.block_on("a", async {
        let (ours, theirs) = pair(&a, &b).await;
        let ((mut to_b, mut from_b), (_to_a, mut from_a)) = (ours.split(), theirs.split());
        for number in 1..6 {
            to_b.send(frame(number, b"bytes")).await.unwrap();
        }
        assert_eq!(next(&mut from_a).await, (1, b"other".to_vec()));
        let second = from_a.recv().await.unwrap().unwrap();
        assert_eq!((second.header.request, second.record), (2, vec![9]));
        assert_eq!(next(&mut from_a).await, (5, b"bytes".to_vec()), "4 is late, and 3 never comes");
        assert_eq!(next(&mut from_b).await.0, 33);
        assert_eq!(next(&mut from_a).await, (4, b"bytes".to_vec()));
        assert!(sim.now() >= 50_000);
    });
    let counts = [Fault::OtherPayload, Fault::OtherRecord, Fault::FalseAnswer, Fault::Overtaken];
    assert_eq!(counts.map(|fault| sim.faults(fault)), [1; 4]);
}

#[test]
fn who_is_sent_a_certain_frame_dies() {
    let sim = calm(2);
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.tamper(|passing| (passing.frame.header.request == 7).then_some(Tampering::Kill(0)));
    sim.block_on("a", async {
        let (ours, theirs) = pair(&a, &b).await;
        let (mut to_b, _from_b) = ours.split();
        let on = b.clone();
        b.spawn("test", async move {
            let (_to_a, mut from_a) = theirs.split();
            while from_a.recv().await.is_ok() {
                on.yield_now().await;
            }
        });
        to_b.send(frame(6, &[])).await.unwrap();
        a.sleep(10_000).await;
        assert!(sim.is_alive("b"));
        to_b.send(frame(7, &[])).await.unwrap();
        a.sleep(10_000).await;
        assert!(!sim.is_alive("b"));
    });
}

#[test]
fn a_rail_is_cut_alone_and_a_node_with_all_its_rails() {
    let sim = calm(3);
    let (a, b) = (sim.node("a"), sim.node("b"));
    ["left", "right"].iter().for_each(|rail| sim.add_rail("b", rail));
    sim.block_on("a", async {
        let listener = b.listen("b:9").await.unwrap();
        let reaches = async |address: &str| a.connect(address).await.is_ok();
        let mut left = a.connect("left:9").await.unwrap().split();
        let mut right = a.connect("right:9").await.unwrap().split();
        let (_one, _other) = (listener.accept().await.unwrap(), listener.accept().await.unwrap());
        sim.cut_one_way("a", "left", true);
        a.sleep(3_000_000).await;
        assert!(left.1.recv().await.is_err() && left.0.send(frame(1, &[])).await.is_err());
        assert!(right.0.send(frame(1, &[])).await.is_ok());
        assert!(!reaches("left:9").await && reaches("right:9").await && reaches("b:9").await);
        sim.cut_one_way("a", "left", false);
        assert!(reaches("left:9").await);
        sim.partition("a", "b", true);
        assert!(!reaches("left:9").await && !reaches("right:9").await && !reaches("b:9").await);
        a.sleep(3_000_000).await;
        assert!(right.1.recv().await.is_err());
    });
}
