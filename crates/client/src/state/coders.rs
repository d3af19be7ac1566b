//! The coders of a volume's tiers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use layout::Coder;
use types::Code;

use crate::state::lock;

/// Makes the coder of each code once. A volume has at most [`TIERS_MAX`](types::limits::TIERS_MAX) of them.
#[derive(Default)]
pub(crate) struct Coders(Mutex<BTreeMap<Code, Arc<Coder>>>);

impl Coders {
    pub(crate) fn of(&self, code: Code) -> Arc<Coder> {
        lock(&self.0).entry(code).or_insert_with(|| Arc::new(Coder::new(code))).clone()
    }
}
