//! Names of the tasks that answer requests.

use super::{
    brick, brick_report, clients, cluster, map, names, notes, opens, proxy, recovery, replica, shards, units,
    volumes,
};

/// All request numbers are below this.
const NUMBERS_END: usize = 400;

const UNKNOWN: &str = "unknown request";

const TASK_NAMES: [&str; NUMBERS_END] = {
    let mut names = [UNKNOWN; NUMBERS_END];
    let tables = [
        brick::REQUESTS,
        brick_report::REQUESTS,
        clients::REQUESTS,
        cluster::REQUESTS,
        map::REQUESTS,
        names::REQUESTS,
        notes::REQUESTS,
        opens::REQUESTS,
        proxy::REQUESTS,
        recovery::REQUESTS,
        replica::REQUESTS,
        shards::REQUESTS,
        units::REQUESTS,
        volumes::REQUESTS,
    ];
    let mut table = 0;
    while table < tables.len() {
        let mut at = 0;
        while at < tables[table].len() {
            let (number, name) = tables[table][at];
            names[number as usize] = name;
            at += 1;
        }
        table += 1;
    }
    names
};

/// The name of the task that answers requests of this number.
pub fn task_name(number: u16) -> &'static str {
    TASK_NAMES.get(usize::from(number)).copied().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Record;

    #[test]
    fn a_request_has_its_name_and_an_answer_has_none() {
        assert_eq!(task_name(brick::Purge::KIND), "request Purge");
        assert_eq!(task_name(cluster::BrickHeartbeat::KIND), "request BrickHeartbeat");
        assert_eq!(task_name(names::Lookup::KIND), "request Lookup");
        assert_eq!(task_name(brick::UnitBytes::KIND), UNKNOWN);
        assert_eq!(task_name(u16::MAX), UNKNOWN);
    }
}
