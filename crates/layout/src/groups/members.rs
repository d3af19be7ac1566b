//! Chooses the bricks of each group, before slots are assigned.
//!
//! Bricks are numbered by domain, then id. First each brick gets a quota of groups. Then each group in turn takes the
//! bricks that have used the smallest share of their quota and, among those, the bricks that share the fewest groups
//! with its members so far.

use std::cmp::Reverse;

use types::BrickId;

use crate::mix;

/// The members of each group as brick numbers. Their order has no meaning.
pub(super) fn choose(domains: &[Vec<BrickId>], groups: usize, slots: usize) -> Vec<Vec<usize>> {
    let ids: Vec<BrickId> = domains.iter().flatten().copied().collect();
    let domain_of: Vec<usize> =
        domains.iter().enumerate().flat_map(|(domain, bricks)| vec![domain; bricks.len()]).collect();
    let quotas = quotas(domains, groups, slots);
    // Bricks are ranked by the used share of their quota, in steps of the smallest quota.
    let step = quotas.iter().copied().filter(|&quota| quota > 0).min().unwrap_or(1);
    let mut used = vec![0usize; ids.len()];
    let mut met = vec![0u16; ids.len() * ids.len()];
    let mut domain_left = vec![0usize; domains.len()];
    quotas.iter().zip(&domain_of).for_each(|(quota, &domain)| domain_left[domain] += quota);
    let mut table = Vec::with_capacity(groups);
    for group in 0..groups {
        let chance: Vec<u64> = ids.iter().map(|id| mix(mix(group as u64) ^ u64::from(id.0))).collect();
        let mut meetings = vec![0u32; ids.len()];
        let mut taken = vec![false; domains.len()];
        let mut members: Vec<usize> = Vec::with_capacity(slots);
        for _ in 0..slots {
            let rank = |&brick: &usize| {
                // A domain that must be in every remaining group comes first. Otherwise its quotas could not be met.
                let must = domain_left[domain_of[brick]] == groups - group;
                (Reverse(must), used[brick] * step / quotas[brick], meetings[brick], chance[brick])
            };
            let free = |&brick: &usize| !taken[domain_of[brick]] && used[brick] < quotas[brick];
            let brick = (0..ids.len())
                .filter(free)
                .min_by_key(rank)
                .expect("no domain has more left than there are groups, so enough domains have some");
            taken[domain_of[brick]] = true;
            used[brick] += 1;
            let row = &met[brick * ids.len()..(brick + 1) * ids.len()];
            meetings.iter_mut().zip(row).for_each(|(sum, &times)| *sum += u32::from(times));
            members.push(brick);
        }
        for &brick in &members {
            domain_left[domain_of[brick]] -= 1;
            members.iter().for_each(|&other| met[brick * ids.len() + other] += 1);
        }
        table.push(members);
    }
    table
}

/// How many groups each brick is in: the same number for all, unless its domain would be in more groups than exist.
fn quotas(domains: &[Vec<BrickId>], groups: usize, slots: usize) -> Vec<usize> {
    let mut largest: Vec<usize> = (0..domains.len()).collect();
    largest.sort_by_key(|&domain| (Reverse(domains[domain].len()), domain));
    let mut capped = vec![false; domains.len()];
    let mut places = groups * slots;
    let mut sharers: usize = domains.iter().map(Vec::len).sum();
    for domain in largest {
        let bricks = domains[domain].len();
        if bricks * places <= groups * sharers {
            break;
        }
        capped[domain] = true;
        places -= groups;
        sharers -= bricks;
    }
    // Rounding makes the sum of the first n quotas equal to the sum of their exact shares, rounded down, for every n.
    // So no domain gets more than its exact share rounded up.
    let share = |i: usize, places: usize, sharers: usize| (i + 1) * places / sharers - i * places / sharers;
    let mut sharer = 0;
    let mut quotas = Vec::new();
    for (bricks, &capped) in domains.iter().zip(&capped) {
        for i in 0..bricks.len() {
            if capped {
                quotas.push(share(i, groups, bricks.len()));
            } else {
                quotas.push(share(sharer, places, sharers));
                sharer += 1;
            }
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas_of(bricks: &[u32], groups: usize, slots: usize) -> Vec<usize> {
        let domains: Vec<Vec<BrickId>> =
            bricks.iter().map(|&bricks| (0..bricks).map(BrickId).collect()).collect();
        quotas(&domains, groups, slots)
    }

    #[test]
    fn quotas_are_fair_within_what_a_domain_can_take() {
        assert_eq!(quotas_of(&[1, 1, 1], 10, 3), [10, 10, 10]);
        assert_eq!(quotas_of(&[1, 1, 1, 1], 10, 3), [7, 8, 7, 8]);
        // The domain of one brick is in every group, and so is the domain of three: a third each.
        assert_eq!(quotas_of(&[3, 1], 12, 2), [4, 4, 4, 12]);
        // Nobody is capped: six bricks share 24 places.
        assert_eq!(quotas_of(&[2, 2, 2], 12, 2), [4; 6]);
        // The large one is capped, the others share what is left.
        assert_eq!(quotas_of(&[8, 1, 1], 8, 2), [1, 1, 1, 1, 1, 1, 1, 1, 4, 4]);
    }
}
