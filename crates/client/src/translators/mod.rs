//! What stands between a caller and the paths, for the sake of speed. Each part has one small face and knows nothing of
//! the others.

pub(crate) mod atimes;
pub(crate) mod write_behind;
