//! Weight that spaces lend to the one that is on, so that a turn costs them nothing beside ordinary programs.
//!
//! Of spaces that take turns, one at a time computes on a processor. The kernel divides the processor between that one and
//! ordinary programs, so all of them together would have the part of one. So a space that is on has the weight of all that want
//! its processors: what they would have natively. Then no truce is needed.
//!
//! 1. Spaces that want common processors, directly or through others, are a *circle*.
//! 2. The kernel compares weights within one group of its scheduler. So a circle lends if all its spaces are in the same one, and the
//!    weight of each can be set ([`Member::group`]). Otherwise it has truces.
//! 3. A space is to weigh, while it is on, as many as want a processor of its own, on the average over its processors, and
//!    [`MOST`] at most: a circle that needs more has truces, too.
//!
//! A space that claims processors for nothing adds to the weight of others what a kernel thread that computes there would weigh
//! natively. Pure.

use upcall_alloc::Bits;

/// The weight of one, as the kernel counts it.
pub const ONE: u32 = 1024;
/// The greatest weight that is lent.
pub const MOST: u32 = 14 * ONE;

/// A space.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// What it wants; nothing: it is in no circle.
    pub wants: Bits,
    /// The kernel's group of it; none: its weight cannot be set.
    pub group: Option<&'a str>,
}

/// What each is to weigh while it is on; `None`: its circle does not lend, or is this space alone.
pub fn weights(members: &[Member<'_>]) -> Vec<Option<u32>> {
    let mut answer = vec![None; members.len()];
    for circle in circles(members) {
        let group = members[circle[0]].group;
        let is_one = group.is_some() && circle.iter().all(|&at| members[at].group == group);
        let weights: Vec<u32> = circle
            .iter()
            .map(|&at| weight(members, &circle, at))
            .collect();
        if circle.len() > 1 && is_one && weights.iter().all(|&weight| weight <= MOST) {
            for (&at, weight) in circle.iter().zip(weights) {
                answer[at] = Some(weight);
            }
        }
    }
    answer
}

fn circles(members: &[Member<'_>]) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..members.len())
        .filter(|&at| !members[at].wants.is_empty())
        .collect();
    let mut all = Vec::new();
    while let Some(first) = left.pop() {
        let mut circle = vec![first];
        let mut seen = 0;
        while let Some(&at) = circle.get(seen) {
            seen += 1;
            let wants = members[at].wants;
            let is_near = |other: &usize| !members[*other].wants.and(wants).is_empty();
            circle.extend(left.iter().copied().filter(is_near));
            left.retain(|other| !is_near(other));
        }
        all.push(circle);
    }
    all
}

/// As many as want a processor of this one, itself among them, on the average.
fn weight(members: &[Member<'_>], circle: &[usize], at: usize) -> u32 {
    let wants = members[at].wants;
    let others = circle
        .iter()
        .filter(|&&other| other != at && members[other].wants.competes(wants));
    let claims: u32 = others
        .map(|&other| members[other].wants.and(wants).len())
        .sum();
    // Those of one and the same processor are on together, and divide what is lent there.
    let parts = match wants.len() {
        1 => circle
            .iter()
            .filter(|&&other| members[other].wants == wants)
            .count() as u64,
        many => many.into(),
    };
    ONE + (u64::from(claims) * u64::from(ONE) / parts.max(1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(wants: u64, group: &str) -> Member<'_> {
        Member {
            wants: Bits([wants, 0, 0, 0]),
            group: (!group.is_empty()).then_some(group),
        }
    }

    fn of(members: &[(u64, &'static str)]) -> Vec<Option<u32>> {
        let members: Vec<Member<'_>> = members.iter().map(|&(w, g)| member(w, g)).collect();
        weights(&members)
    }

    #[test]
    fn who_is_on_weighs_as_all_that_want_its_processors() {
        assert_eq!(of(&[(0b11, "a"), (0b11, "a")]), [Some(2 * ONE); 2]);
        assert_eq!(of(&[(0b11, "a"); 5]), [Some(5 * ONE); 5]);
        // One of two processors is wanted by two.
        let uneven = of(&[(0b11, "a"), (0b01, "a")]);
        assert_eq!(uneven, [Some(ONE * 3 / 2), Some(2 * ONE)]);
        // The two of one processor are on together.
        let together = of(&[(0b11, "a"), (0b01, "a"), (0b01, "a")]);
        assert_eq!(
            together,
            [Some(2 * ONE), Some(ONE * 3 / 2), Some(ONE * 3 / 2)]
        );
    }

    #[test]
    fn who_is_in_nobodys_way_lends_and_borrows_nothing() {
        assert_eq!(of(&[(0b11, "a"), (0, "a")]), [None; 2]);
        assert_eq!(of(&[(0b0011, "a"), (0b1100, "a")]), [None; 2]);
        // Two of one processor each do not take turns.
        assert_eq!(of(&[(1, "a"), (1, "a")]), [Some(ONE); 2]);
    }

    #[test]
    fn a_circle_of_several_groups_has_truces() {
        assert_eq!(of(&[(0b11, "a"), (0b11, "b")]), [None; 2]);
        assert_eq!(of(&[(0b11, "a"), (0b11, "")]), [None; 2]);
        assert_eq!(of(&[(0b11, ""), (0b11, "")]), [None; 2]);
        // Through the second one, all three.
        let linked = [(0b0011, "a"), (0b0110, "a"), (0b1100, "b")];
        assert_eq!(of(&linked), [None; 3]);
        let apart = of(&[(0b0011, "a"), (0b0011, "a"), (0b1100, "b")]);
        assert_eq!(apart, [Some(2 * ONE), Some(2 * ONE), None]);
    }

    #[test]
    fn too_many_have_truces() {
        assert_eq!(of(&[(0b11, "a"); 14]), [Some(14 * ONE); 14]);
        assert_eq!(of(&[(0b11, "a"); 15]), [None; 15]);
    }
}
