//! A cluster as one of its nodes sees it.

use super::super::server::{Server, field_of};
use super::SLOTS;

/// What a node tells of the cluster.
#[derive(Debug)]
pub(super) struct View {
    state: String,
    members: Vec<Member>,
}

/// What a node knows of one node, maybe itself.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) flags: Vec<String>,
    /// The id of its master, if it is a replica.
    pub(super) master: Option<String>,
    /// When it was elected: of two claims, the one with the greater epoch holds.
    pub(super) epoch: u64,
    /// First and last of each range.
    pub(super) slots: Vec<(u16, u16)>,
}

impl View {
    /// Asks a node.
    pub(super) fn of(node: &Server) -> Result<View, String> {
        let state = field_of(&node.ask(&["CLUSTER", "INFO"])?.text(), "cluster_state").unwrap_or_default();
        let members = node.ask(&["CLUSTER", "NODES"])?.text().lines().filter_map(Member::parse).collect();
        Ok(View { state, members })
    }

    /// What the node tells of itself.
    pub(super) fn myself(mut self) -> Member {
        let index = self.members.iter().position(|member| member.is("myself"));
        self.members.swap_remove(index.expect("every node knows itself"))
    }

    /// Whether so many nodes are known by name.
    pub(super) fn knows(&self, count: usize) -> bool {
        self.members.len() == count && self.members.iter().all(|member| !member.is("handshake"))
    }

    /// Which masters have which slots, in order.
    pub(super) fn owners(&self) -> Vec<(u16, u16, String)> {
        let ranges = |member: &Member| member.slots.clone().into_iter().zip(std::iter::repeat(member.id.clone()));
        let mut owners: Vec<_> = self.members.iter().flat_map(ranges).map(|((a, b), id)| (a, b, id)).collect();
        owners.sort_unstable();
        owners
    }

    /// Whether the nodes of these ids serve every slot and are all well; what
    /// is wrong if not.
    pub(super) fn check(&self, ids: &[&str]) -> Result<(), String> {
        if self.state != "ok" {
            return Err(format!("the state is {:?}", self.state));
        }
        let is_ill = |member: &&Member| ["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| member.is(flag));
        let runs = |id: &str| ids.contains(&id);
        if let Some(ill) = self.members.iter().filter(|member| runs(&member.id)).find(is_ill) {
            return Err(format!("{} is {:?}", ill.id, ill.flags));
        }
        if let Some(lost) = ids.iter().find(|id| !self.members.iter().any(|member| member.id == **id)) {
            return Err(format!("{lost} is unknown"));
        }
        let owners = self.owners();
        if let Some((first, last, id)) = owners.iter().find(|(_, _, id)| !runs(id)) {
            return Err(format!("the slots {first}-{last} belong to {id}, which does not run"));
        }
        let owns = |id: &String| owners.iter().any(|(_, _, owner)| owner == id);
        let is_idle = |member: &&Member| !owns(&member.id) && !member.master.as_ref().is_some_and(owns);
        if let Some(idle) = self.members.iter().filter(|member| runs(&member.id)).find(is_idle) {
            return Err(format!("{} is neither master of a slot nor replica of one who is", idle.id));
        }
        let served: usize = owners.iter().map(|(first, last, _)| usize::from(last - first) + 1).sum();
        if served == usize::from(SLOTS) { Ok(()) } else { Err(format!("{served} slots are served")) }
    }
}

impl Member {
    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|have| have == flag)
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// From a line of `CLUSTER NODES`:
    /// `id address flags master ping pong epoch link range [slot->-id]`.
    fn parse(line: &str) -> Option<Member> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _address, flags, master, _ping, _pong, epoch, _link, slots @ ..] = words.as_slice() else {
            return None;
        };
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Some(Member {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master != "-").then(|| (*master).to_owned()),
            epoch: epoch.parse().ok()?,
            // A slot on its way stands in brackets, and belongs to whom it belonged to.
            slots: slots.iter().filter(|word| !word.starts_with('[')).filter_map(range).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Member;

    #[test]
    fn a_line_of_a_master_names_its_slots() {
        let line = "e7d1 127.0.0.1:30001@31001,host myself,master - 0 0 4 connected 0-5460 9000 [93->-292f]";
        let member = Member::parse(line).expect("a line of eight words or more");
        assert!(member.is("myself") && member.is("master") && member.master.is_none());
        assert_eq!((member.epoch, member.slots.as_slice()), (4, &[(0, 5_460), (9_000, 9_000)][..]));
        assert!(member.owns(5_460) && !member.owns(5_461));
    }

    #[test]
    fn a_line_of_a_replica_names_its_master() {
        let line = "07c3 127.0.0.1:30004@31004 slave,fail? e7d1 0 1426238317239 4 connected";
        let member = Member::parse(line).expect("a line of eight words or more");
        assert!(member.is("fail?") && !member.is("fail"));
        assert_eq!(member.master.as_deref(), Some("e7d1"));
        assert!(member.slots.is_empty());
    }
}
