//! Who gets how many units of a limit: max-min fair by demand.
//!
//! Every client gets at least the floor, and no client more than it wants while another that wants
//! more has less. What is left over is spread over all, except a reserve.

use super::pool::UNITS;

/// Units that are kept for clients that come later, while no client lacks any.
pub(crate) const RESERVE: u32 = UNITS / 4;

/// Clients among which a limit can always be divided, while a token is left for each.
const ALWAYS: u32 = 64;

/// The fewest units that are worth having when there are so many clients.
pub(crate) fn floor(least: u32, clients: usize) -> u32 {
    let clients = u32::try_from(clients).unwrap_or(u32::MAX);
    least.max(UNITS / ALWAYS.max(clients.saturating_mul(2))).max(1)
}

/// Divides `total` units among clients that want so many each, in their order; beyond that, all but
/// the reserve. Where not all can have the floor, the first ones do.
pub(crate) fn divide((total, reserve): (u32, u32), floor: u32, wants: &[u32]) -> Vec<u32> {
    let served = wants.len().min((total / floor.max(1)) as usize);
    let mut shares = vec![0; wants.len()];
    let wanted = |place: usize| wants[place].max(floor);
    // From the most modest on: each gets what it wants, or an even part of what is left.
    let mut order: Vec<usize> = (0..served).collect();
    order.sort_by_key(|place| wanted(*place));
    let mut left = total;
    for (done, place) in order.iter().enumerate() {
        let waiting = (served - done) as u32;
        shares[*place] = wanted(*place).min(left / waiting);
        left -= shares[*place];
    }
    let each = left.saturating_sub(reserve).checked_div(served as u32).unwrap_or_default();
    shares.iter_mut().take(served).for_each(|share| *share += each);
    shares
}

/// Whether a share differs so much from what it should be that a message is worth it.
pub(crate) fn is_far(share: u32, target: u32) -> bool {
    share.abs_diff(target) > share.max(target) / 8 || (share == 0) != (target == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_modest_get_what_they_want_and_the_others_share_the_rest() {
        assert_eq!(divide((840, RESERVE), 13, &[840, 84, 0]), [743, 84, 13]);
        assert_eq!(divide((840, RESERVE), 13, &[840, 840]), [420, 420]);
        assert_eq!(divide((840, RESERVE), 13, &[840]), [840]);
        assert_eq!(divide((840, RESERVE), 13, &[0]), [630], "a quarter is kept for others");
        assert!(divide((840, RESERVE), 13, &[]).is_empty());
        assert_eq!(divide((100, RESERVE), 40, &[840, 840, 840]), [50, 50, 0], "no room for a third");
        assert_eq!(divide((840, UNITS), 13, &[0, 84]), [13, 84], "nothing beyond what is wanted");
        assert_eq!((floor(1, 1), floor(200, 1), floor(1, 420), floor(1, 10_000)), (13, 200, 1, 1));
    }

    proptest! {
        #[test]
        fn a_division_is_max_min_fair(
            total in 0..=UNITS,
            least in 1..100_u32,
            wants in prop::collection::vec(0..=UNITS, 0..20),
        ) {
            let shares = divide((total, RESERVE), least, &wants);
            prop_assert!(shares.iter().sum::<u32>() <= total);
            let served = shares.iter().filter(|share| **share > 0).count();
            prop_assert_eq!(served, wants.len().min((total / least) as usize));
            for (share, want) in shares.iter().zip(&wants).take(served) {
                prop_assert!(*share >= least);
                // Less than it wants: then no other client has more than it, and nothing is left but a rest.
                if share < want {
                    prop_assert!(shares.iter().zip(&wants).all(|(other, want)| *other <= share.max(want) + served as u32 || other <= want));
                    prop_assert!(shares.iter().all(|other| *other <= share + 1 + total / served as u32 / 1_000_000 + served as u32));
                    prop_assert!(total - shares.iter().sum::<u32>() < served as u32);
                }
            }
        }
    }
}
