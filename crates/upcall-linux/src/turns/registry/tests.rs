//! The file is checked before it is used. A new member takes over the slot of a dead one.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::*;

/// A path of its own for each test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let mut path = std::env::temp_dir();
        path.push(format!("upcall-registry-{}-{name}", std::process::id()));
        Place(path)
    }

    fn path(&self) -> Path {
        Path::new().text(self.0.to_str().unwrap().as_bytes())
    }

    fn join(&self, pid: i32) -> Result<Registry, Trouble> {
        Registry::join_at(|| self.path(), pid)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A process that lives until it is told otherwise.
fn other_process() -> Child {
    Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

#[test]
fn members_see_each_other_and_the_dead_make_room() {
    let place = Place::new("members");
    let mut child = other_process();
    let mine = place.join(own_pid()).unwrap();
    let theirs = place.join(child.id() as i32).unwrap();
    assert_ne!(mine.id(), theirs.id());

    let mut busy = Set::default();
    busy.0[0] = 3;
    theirs.publish_busy(busy);
    theirs.publish(Phase::On { since: 7 });
    theirs.beat(8);
    let mut room = [Member::default(); SLOTS];
    assert_eq!(mine.others(&mut room), 1);
    let seen = room[0];
    assert_eq!((seen.id, seen.busy, seen.beat), (theirs.id(), busy, 8));
    assert_eq!(seen.phase, Phase::On { since: 7 });
    mine.want(theirs.id());
    assert!(theirs.is_wanted() && !mine.is_wanted());

    assert!(!mine.bury(theirs.id()), "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(mine.bury(theirs.id()));
    assert_eq!(mine.others(&mut room), 0);
}

#[test]
fn an_offer_stands_until_it_is_answered_and_rings() {
    let place = Place::new("offer");
    let mut child = other_process();
    let mine = place.join(own_pid()).unwrap();
    let theirs = place.join(child.id() as i32).unwrap();
    mine.publish(Phase::Waiting {
        since: 5,
        offered: 0,
    });
    let bell = crate::turns::bell::word(mine.bell());
    let before = bell.load(Ordering::SeqCst);
    theirs.offer(mine.id(), 10);
    theirs.offer(mine.id(), 20);
    assert_eq!(
        mine.me().phase,
        Phase::Waiting {
            since: 5,
            offered: 10
        }
    );
    assert_ne!(bell.load(Ordering::SeqCst), before);
    // Rung before: does not sleep.
    crate::turns::bell::sleep(mine.bell(), before, u64::MAX / 2);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_same_process_takes_its_old_slot_over_clean() {
    let place = Place::new("again");
    let before = place.join(own_pid()).unwrap();
    before.publish(Phase::On { since: 1 });
    let mut busy = Set::default();
    busy.0[1] = 1;
    before.publish_busy(busy);
    let truce = Truce {
        until: 9,
        length: 8,
    };
    before.publish_truce(truce);
    assert_eq!(before.me().truce, truce);
    let after = place.join(own_pid()).unwrap();
    assert_eq!(before.id(), after.id());
    assert_eq!(after.me().phase, Phase::Resting);
    assert!(after.me().busy.is_empty());
    assert_eq!(after.me().truce, Truce::default());
}

#[test]
fn a_full_registry_says_so() {
    let place = Place::new("full");
    place.join(own_pid()).unwrap();
    let shared = attach(place.path()).unwrap().shared;
    for slot in &shared.slots {
        slot.pid.store(1, Ordering::Relaxed);
    }
    assert_eq!(place.join(own_pid()).err(), Some(Trouble::Full));
    // No process can have this number.
    shared.slots[9].pid.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(place.join(own_pid()).unwrap().id(), 9);
}

#[test]
fn files_of_others_and_strange_ones_are_left_alone() {
    let open = |place: &Place, mode| {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&place.0)
            .unwrap();
        file.set_permissions(fs::Permissions::from_mode(mode))
            .unwrap();
        file
    };
    let shared = Place::new("readable");
    open(&shared, 0o644);
    assert_eq!(shared.join(own_pid()).err(), Some(Trouble::NotOurs));

    let short = Place::new("short");
    open(&short, 0o600).set_len(100).unwrap();
    assert_eq!(short.join(own_pid()).err(), Some(Trouble::Layout));

    let other = Place::new("magic");
    open(&other, 0o600).set_len(SIZE as u64).unwrap();
    fs::write(&other.0, vec![1u8; SIZE]).unwrap();
    assert_eq!(other.join(own_pid()).err(), Some(Trouble::Layout));

    let link = Place::new("link");
    let target = Place::new("target");
    std::os::unix::fs::symlink(&target.0, &link.0).unwrap();
    assert_eq!(link.join(own_pid()).err(), Some(Trouble::NotOurs));
    assert!(!target.0.exists(), "nothing is created through a link");

    let nowhere = Place(PathBuf::from("/nonexistent/upcall-registry"));
    assert_eq!(
        nowhere.join(own_pid()).err(),
        Some(Trouble::Open(libc::ENOENT))
    );
}

#[test]
fn a_directory_that_may_not_be_written_is_not_somebody_elses_file() {
    // Nobody creates files there, root included.
    let closed = Place(PathBuf::from("/sys/upcall-registry"));
    let trouble = closed.join(own_pid()).err();
    assert!(matches!(trouble, Some(Trouble::Open(_))), "{trouble:?}");
}

#[test]
fn the_path_names_user_and_namespace() {
    let path = path();
    // SAFETY: asks only.
    let user = unsafe { libc::geteuid() };
    let shared = format!("/dev/shm/upcall-turns-2-{user}-");
    let own = format!("/run/user/{user}/upcall-turns-2-");
    assert!(
        path.starts_with(&shared) || path.starts_with(&own),
        "{path}"
    );
}

#[test]
fn the_last_member_that_leaves_removes_the_file() {
    let place = Place::new("last");
    let mut child = other_process();
    let mine = place.join(own_pid()).unwrap();
    let theirs = place.join(child.id() as i32).unwrap();
    mine.leave();
    assert!(place.0.exists(), "somebody is in it");
    theirs.leave();
    assert!(!place.0.exists());
    // Killed before it could leave: the next one does it for both.
    place.join(child.id() as i32).unwrap();
    let mine = place.join(own_pid()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    mine.leave();
    assert!(!place.0.exists());
}

#[test]
fn a_file_that_another_one_has_replaced_stays() {
    let place = Place::new("replaced");
    let mine = place.join(own_pid()).unwrap();
    fs::remove_file(&place.0).unwrap();
    fs::write(&place.0, "another").unwrap();
    mine.leave();
    assert_eq!(fs::read(&place.0).unwrap(), b"another");
}

#[test]
fn the_memory_is_there_before_it_is_used() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new("blocks");
    place.join(own_pid()).unwrap();
    let blocks = fs::metadata(&place.0).unwrap().blocks();
    assert!(blocks * 512 >= SIZE as u64, "{blocks}");
}
