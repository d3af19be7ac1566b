//! A store on disk is found again with what it had, and nobody opens it twice at the same time: it is made, closed and
//! opened.

use meta::{Engine, MetaError, cluster_of, create_cluster, kv::EngineError};
use types::ClusterId;

#[test]
fn a_store_is_found_again() {
    let directory =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("meta-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for tests");
    let path = directory.join("store.redb");
    let id = ClusterId([9; 16]);
    let engine = Engine::open_redb(&path).expect("new");
    assert_eq!(cluster_of(&engine).expect("readable"), None);
    create_cluster(&engine, id).expect("empty");
    assert!(matches!(Engine::open_redb(&path), Err(EngineError::InUse)), "somebody has it");
    drop(engine);
    let engine = Engine::open_redb_within(&path, 16 << 20).expect("there");
    assert_eq!(cluster_of(&engine).expect("readable"), Some(id));
    assert!(matches!(create_cluster(&engine, id), Err(MetaError::Exists)));
    drop(engine);
    std::fs::remove_dir_all(&directory).expect("made above");
}
