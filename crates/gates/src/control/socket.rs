//! The socket at which a gate answers commands of its machine: a line, then the answer and a line `end`. Only the
//! user of the gate may connect ([`World::listen_at_path`]).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use client::Mount;
use types::Buf;
use world::{Conn, Listener, World};

use super::question::{QUESTION_MAX, Question};

/// Most connections at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 8;
/// How long one may take, in microseconds.
const PATIENCE_US: u64 = 5_000_000;
/// Pause after a failed accept, in microseconds.
const ACCEPT_PAUSE_US: u64 = 100_000;

/// Answers at the socket until dropped.
pub async fn serve(world: &World, listener: &Listener, mount: &Arc<Mount>) {
    let connections = Rc::new(Cell::new(0));
    loop {
        let conn = match listener.accept().await {
            Ok(conn) => conn,
            Err(error) => {
                tracing::debug!(%error, "a command could not connect");
                world.sleep(ACCEPT_PAUSE_US).await;
                continue;
            }
        };
        if connections.get() >= CONNECTIONS_MAX {
            continue;
        }
        connections.set(connections.get() + 1);
        let (connections, task_world, mount) = (connections.clone(), world.clone(), mount.clone());
        world.spawn("control connection", async move {
            let answering = answer(&task_world, conn, &mount);
            if task_world.timeout(PATIENCE_US, answering).await.is_none() {
                tracing::debug!("a command asked nothing in time");
            }
            connections.set(connections.get() - 1);
        });
    }
}

async fn answer(world: &World, conn: Conn, mount: &Mount) {
    let (mut sender, mut receiver) = conn.split_stream();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < QUESTION_MAX {
        match receiver.head(1).await {
            Ok(Some(byte)) => line.extend(byte),
            Ok(None) | Err(_) => return,
        }
    }
    let text = match Question::parse(&line) {
        Some(question) => question.answer(mount, world.now()),
        None => "error ask `xray`, `why` or `tune`, and `file INODE` for a file\n".to_owned(),
    };
    let text = text + "end\n";
    if let Err(error) = sender.send(&[], Buf::copy_of(text.as_bytes())).await {
        tracing::debug!(%error, "a command did not wait for its answer");
    }
}
