//! A record that has the checksums of its payload is compared with it, unless a tag shows that the one who computed them sent both.

use super::*;
use crate::rpc::covered;

/// A record that covers its payload.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cargo(pub(super) Vec<u32>);

impl Codec for Cargo {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Cargo, DecodeError> {
        Codec::decode(reader).map(Cargo)
    }

    fn describe(_: &mut Forms) -> String {
        "Cargo".to_owned()
    }

    fn sample(n: &mut u8) -> Cargo {
        Cargo(Codec::sample(n))
    }
}

impl Record for Cargo {
    const KIND: u16 = 9003;
    const NAME: &'static str = "Cargo";

    fn block_sums(&self) -> &[u32] {
        &self.0
    }
}

impl Request for Cargo {
    type Reply = Cargo;
}

#[test]
fn a_payload_that_its_record_covers_is_compared_with_it() {
    compare_payloads(Key([9; 32]));
    compare_payloads(Key::OPEN);
}

/// A client is believed if a tag shows that it sent these bytes. A brick sends on the bytes of others.
#[test]
fn a_sealed_payload_of_a_client_is_not_compared_once_more() {
    let send = |role, key: Key| {
        let identity = |role| Identity { key: key.clone(), ..identity(role) };
        let sim = Simulation::new(1, SimOptions::default());
        let (server, caller) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            let listener = server.listen(SERVER).await.unwrap();
            let handler: Handler = Rc::new(|call| {
                Box::pin(async move {
                    call.parse_from_maker::<Cargo>().map(|_| Answer::new(&Cargo(Vec::new()), Buf::empty()))
                })
            });
            server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
            let peers = Peers::new(caller.clone(), identity(role));
            let sums = types::checksum::crc_blocks(&[3; 5000]);
            let mut answers = Vec::new();
            for len in [5000, 4096, 8193] {
                let bytes = Buf::from(vec![4; len]);
                answers.push(peers.call(SERVER, Epoch(5), &Cargo(sums.clone()), bytes).await.map(drop));
            }
            answers
        })
    };
    let refused = Err(CallError::Refused(Refusal::Malformed));
    assert_eq!(send(Role::Client, Key([9; 32])), [Ok(()), refused, refused], "a checksum for each block");
    assert_eq!(send(Role::Client, Key::OPEN), [refused; 3]);
    for role in [Role::Brick, Role::Meta, Role::MetaFollower] {
        assert_eq!(send(role, Key([9; 32])), [refused; 3], "{role:?}");
    }
}

fn compare_payloads(key: Key) {
    let identity = |role| Identity { key: key.clone(), ..identity(role) };
    let sim = Simulation::new(1, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let listener = server.listen(SERVER).await.unwrap();
        let handler: Handler = Rc::new(|call| {
            Box::pin(async move {
                let Cargo(sums) = call.parse()?;
                assert_eq!(call.covered, !sums.is_empty());
                // Sums of something else if the first one is 7.
                let told = if call.payload.first() == Some(&7) { vec![1, 2] } else { sums };
                Ok(Answer::new(&Cargo(told), call.payload))
            })
        });
        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let send = async |sums: Vec<u32>, bytes: &[u8]| {
            let answer = peers.call(SERVER, Epoch(5), &Cargo(sums), Buf::copy_of(bytes)).await;
            answer.map(|(_, payload)| payload.len())
        };
        let bytes = vec![3; 5000];
        let sums = types::checksum::crc_blocks(&bytes);
        assert_eq!(send(sums.clone(), &bytes).await, Ok(5000));
        assert_eq!(send(Vec::new(), &bytes).await, Ok(5000), "covered by the frame");
        assert_eq!(send(sums.clone(), &[3; 4999]).await, Err(CallError::Refused(Refusal::Malformed)));
        assert_eq!(send(sums[..1].to_vec(), &bytes).await, Err(CallError::Refused(Refusal::Malformed)));
        let odd = vec![7; 5000];
        let sums = types::checksum::crc_blocks(&odd);
        // The tag of an answer shows damage, and the server has compared what it sends.
        let expected = if key == Key::OPEN { Err(CallError::Unreachable) } else { Ok(5000) };
        assert_eq!(send(sums, &odd).await, expected);
    });
}

#[test]
fn a_header_that_promises_sums_that_the_record_lacks_is_refused() {
    let (covered, plain) = (Flags::REQUEST.with(Flags::COVERED), Flags::REQUEST);
    assert_eq!(covered::flags(&Ask(1), plain), plain);
    assert_eq!(covered::flags(&Cargo(vec![1]), plain), covered);
    assert!(!covered::matches_header(&Ask(1), true));
    assert!(!covered::matches_header(&Cargo(vec![1]), false));
    assert!(!covered::matches_header(&Cargo(Vec::new()), true));
    assert!(covered::matches_header(&Cargo(Vec::new()), false));
}
