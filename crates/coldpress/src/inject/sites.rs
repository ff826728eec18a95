//! The system calls of a program that the library must know of, found by their number, which stands
//! right before them. In programs that glibc's loader starts, libc's functions lead there.
//!
//! `mov $nr, %eax` takes five bytes, as does the jump that is written over it. The call follows, or
//! comes after one more move of a register, which the stub then makes too. What lies behind those
//! five bytes stays as it is. The jump leads to a stub in the library, which is near enough for
//! that. From there the call goes on in one of two ways:
//!
//! - The library makes it (`runtime/preload/calls.rs`): a fork, or memory that is
//!   mapped.
//! - The thread makes it, after the library has let the thread go that it keeps on a processor: a
//!   thread or a program is started, which may share the program's memory or get a stack of its
//!   own. It could not come back through code of ours.

pub(super) use coldpress_runtime::wire::STUBS_BYTES;
use coldpress_sys::PAGE_BYTES;

/// The opcode of `mov $nr, %eax`; the number of four bytes follows.
const MOVE: u8 = 0xb8;
/// The opcode of a jump; an offset of four bytes follows. It takes the place of `mov $nr, %eax`.
pub(super) const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The bytes of a move from one register of 64 bits to another.
const MOVE_BYTES: usize = 3;
/// The bytes of a stub, and the stubs that the library has room for.
const STUB_BYTES: usize = 128;
pub(super) const STUBS: usize = STUBS_BYTES / STUB_BYTES;
/// Numbers of calls (asm/unistd_64.h).
const MMAP: u32 = 9;
const BRK: u32 = 12;
const MREMAP: u32 = 25;
const MADVISE: u32 = 28;
const CLONE: u32 = 56;
const FORK: u32 = 57;
const VFORK: u32 = 58;
const EXECVE: u32 = 59;
const PRCTL: u32 = 157;
const SCHED_SETAFFINITY: u32 = 203;
const SCHED_GETAFFINITY: u32 = 204;
const SECCOMP: u32 = 317;
const EXECVEAT: u32 = 322;
const CLONE3: u32 = 435;
/// The calls that the library makes. It makes no `clone` that shares memory or brings a stack.
const MADE: [u32; 10] =
    [MMAP, BRK, MREMAP, MADVISE, CLONE, FORK, PRCTL, SCHED_SETAFFINITY, SCHED_GETAFFINITY, SECCOMP];
/// The calls before which the thread is let go.
const STARTERS: [u32; 5] = [CLONE, VFORK, EXECVE, EXECVEAT, CLONE3];
/// The beginning of musl's `__clone`: `xor %eax, %eax; mov $56, %al; mov %rdi, %r11`.
const MUSL_CLONE: [u8; 7] = [0x31, 0xc0, 0xb0, 0x38, 0x49, 0x89, 0xfb];
/// How far a jump reaches, with room for the length of the library.
pub(super) const REACH: usize = (1 << 31) - (64 << 20);

/// A system call in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) address: usize,
    number: u32,
    rest: Rest,
}

/// What follows the number of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The call.
    Call,
    /// A move, then the call.
    MoveAndCall([u8; MOVE_BYTES]),
    /// The rest of musl's `__clone`.
    OfMusl,
}

impl Site {
    /// Returns the site whose code begins here.
    fn at(address: usize, code: &[u8]) -> Option<Self> {
        if code.starts_with(&MUSL_CLONE) {
            return Some(Self { address, number: CLONE, rest: Rest::OfMusl });
        }
        let (number, rest) = number_at(code)?;
        if !MADE.contains(&number) && !STARTERS.contains(&number) {
            return None;
        }
        if rest.starts_with(&SYSCALL) {
            return Some(Self { address, number, rest: Rest::Call });
        }
        let (between, rest) = rest.split_first_chunk()?;
        let is_one = is_move(*between) && rest.starts_with(&SYSCALL);
        is_one.then_some(Self { address, number, rest: Rest::MoveAndCall(*between) })
    }

    /// Whether a thread that goes on at `address` would come into the middle of the jump.
    pub(super) fn is_within(self, address: usize) -> bool {
        (self.address + 1..self.address + JUMP_BYTES).contains(&address)
    }

    /// Returns the code that the jump is written over.
    pub(super) fn before(self) -> [u8; JUMP_BYTES] {
        let [a, b, c, d] = self.number.to_le_bytes();
        match self.rest {
            Rest::Call | Rest::MoveAndCall(_) => [MOVE, a, b, c, d],
            Rest::OfMusl => {
                [MUSL_CLONE[0], MUSL_CLONE[1], MUSL_CLONE[2], MUSL_CLONE[3], MUSL_CLONE[4]]
            }
        }
    }

    /// Returns where the program goes on.
    fn behind(self) -> usize {
        self.address
            + match self.rest {
                Rest::Call => JUMP_BYTES + SYSCALL.len(),
                Rest::MoveAndCall(between) => JUMP_BYTES + between.len() + SYSCALL.len(),
                Rest::OfMusl => MUSL_CLONE.len(),
            }
    }
}

/// Returns the number that code puts into `eax`, and the code behind.
fn number_at(code: &[u8]) -> Option<(u32, &[u8])> {
    let (&[MOVE, a, b, 0, 0], rest) = code.split_first_chunk()? else { return None };
    Some((u16::from_le_bytes([a, b]).into(), rest))
}

/// Whether code begins with a number, and a call behind it, at most a move later.
fn is_call(code: &[u8]) -> bool {
    let Some((_, rest)) = number_at(code) else { return code.starts_with(&MUSL_CLONE) };
    rest.starts_with(&SYSCALL)
        || rest.get(MOVE_BYTES..).is_some_and(|behind| behind.starts_with(&SYSCALL))
}

/// Bytes to write, and where.
pub(super) type Change = (usize, Vec<u8>);

/// The calls that were found in a program.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) all: Vec<Site>,
    /// Whether some call may ask for processors, or set them, that is none of these.
    misses_processors: bool,
    /// Whether some call makes children that is none of these.
    misses_forks: bool,
    /// Whether any call was found by its number, whichever it is.
    has_any: bool,
}

impl Sites {
    /// Adds the calls in code that lies at `address`, of those that begin in the first `length`
    /// bytes of it.
    pub(super) fn find_up_to(&mut self, code: &[u8], address: usize, length: usize) {
        // Most bytes begin none of them, and there may be a hundred MiB.
        for at in memchr::memchr2_iter(MOVE, MUSL_CLONE[0], &code[..length]) {
            // `mov $nr, %r8d` ends in the same bytes.
            let is_other = at > 0 && code[at - 1] == 0x41;
            let site = Site::at(address + at, &code[at..]).filter(|_| !is_other);
            // The jump is written at once, into one page.
            let fits = |site: &Site| site.address % PAGE_BYTES + JUMP_BYTES <= PAGE_BYTES;
            self.has_any = self.has_any || is_call(&code[at..]);
            match site {
                Some(site) if fits(&site) => self.all.push(site),
                Some(Site { number: FORK | CLONE, .. }) => self.misses_forks = true,
                _ => {
                    let number = number_at(&code[at..]).map(|(number, _)| number);
                    self.misses_processors |=
                        matches!(number, Some(SCHED_SETAFFINITY | SCHED_GETAFFINITY));
                }
            }
        }
    }

    /// Whether there is such a call, and room for all of them.
    fn have(&self, number: u32) -> bool {
        self.all.len() <= STUBS && self.all.iter().any(|site| site.number == number)
    }

    /// Whether these are the calls by which a libc maps memory.
    pub(super) fn tell_of_memory(&self) -> bool {
        self.have(MMAP) && self.have(BRK)
    }

    /// Whether forks come to the library: calls are found by their numbers in this program, and
    /// there is a stub for each that makes children.
    pub(super) fn tell_of_forks(&self) -> bool {
        let makes_children = |site: &Site| matches!(site.number, FORK | CLONE);
        self.has_any && !self.misses_forks && !self.all.iter().skip(STUBS).any(makes_children)
    }

    /// Whether a libc is found among these, so that the calls that start threads and programs are
    /// too, as far as the program has them.
    pub(super) fn tell_of_starts(&self) -> bool {
        self.tell_of_memory() && !self.misses_processors
    }
}

/// The library's code to which stubs lead. Each begins behind the red zone of the stack, where the
/// address lies at which to go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors {
    /// Makes the call whose number is in `eax`.
    pub(super) came: usize,
    /// Lets the thread go.
    pub(super) loose: usize,
}

/// Returns what to write, so that `sites` lead to the library's `doors` by stubs that lie at
/// `stubs`: the stubs first. A site that is out of reach is left out.
pub(super) fn changes(sites: &Sites, stubs: usize, doors: Doors) -> Vec<Change> {
    let mut changes = Vec::new();
    for (index, site) in sites.all.iter().take(STUBS).enumerate() {
        let at = stubs + index * STUB_BYTES;
        let Some(jump) = jump(site.address, at) else { continue };
        let Some(stub) = stub(*site, at, doors) else { continue };
        changes.insert(0, (at, stub));
        changes.push((site.address, jump.to_vec()));
    }
    changes
}

/// Returns the calls that these stubs were made for.
pub(super) fn of_stubs(stubs: &[u8]) -> Vec<Site> {
    stubs.chunks(STUB_BYTES).filter_map(of_stub).collect()
}

fn of_stub(stub: &[u8]) -> Option<Site> {
    let (&behind, _) = stub.as_chunks::<8>().0.split_last()?;
    let behind = u64::from_le_bytes(behind) as usize;
    if stub.get(GO_BY_BYTES..)?.starts_with(&MUSL_CLONE) {
        // The word has the address behind the stub's own beginning.
        let from = stub.get(GO_BY_BYTES + MUSL_CLONE.len() + 1..)?.first_chunk()?;
        let next = behind + MUSL_CLONE.len() + JUMP_BYTES;
        let target = next.wrapping_add_signed(i32::from_le_bytes(*from) as isize);
        let address = target.checked_sub(MUSL_CLONE.len())?;
        return Some(Site { address, number: CLONE, rest: Rest::OfMusl });
    }
    let (number, rest) = number_at(stub)?;
    let between: [u8; MOVE_BYTES] = *rest.first_chunk()?;
    let rest = if is_move(between) { Rest::MoveAndCall(between) } else { Rest::Call };
    let site = Site { address: 0, number, rest };
    Some(Site { address: behind.checked_sub(site.behind())?, ..site })
}

/// Whether this is a move from one register of 64 bits to another: a prefix, the opcode, and the
/// two registers.
fn is_move(code: [u8; MOVE_BYTES]) -> bool {
    code[0] & 0xf8 == 0x48 && code[1] == 0x89 && code[2] >= 0xc0
}

/// Returns `jmp` from `at` to `target`, if that is near enough.
fn jump(at: usize, target: usize) -> Option<[u8; JUMP_BYTES]> {
    let by = target.wrapping_sub(at + JUMP_BYTES).cast_signed();
    let [a, b, c, d] = i32::try_from(by).ok()?.to_le_bytes();
    Some([JUMP, a, b, c, d])
}

/// Returns the stub at `at` for `site`.
fn stub(site: Site, at: usize, doors: Doors) -> Option<Vec<u8>> {
    /// `test $CLONE_VM, %edi; jne .+STEP; test %rsi, %rsi; jne .+STEP`.
    const IS_SHARED: [u8; 8] = [0xf7, 0xc7, 0x00, 0x01, 0x00, 0x00, 0x75, 0];
    const HAS_STACK: [u8; 5] = [0x48, 0x85, 0xf6, 0x75, 0];
    let mut stub = Vec::with_capacity(STUB_BYTES);
    let (behind, behind_at) = (site.behind(), STUB_BYTES - size_of::<usize>());
    if let Rest::OfMusl = site.rest {
        go_by(&mut stub, at, doors.loose, behind_at)?;
        let back = at + stub.len();
        stub.extend(MUSL_CLONE);
        stub.extend(jump(at + stub.len(), behind)?);
        return Some(with_words(stub, [back, back]));
    }
    stub.push(MOVE);
    stub.extend(site.number.to_le_bytes());
    if let Rest::MoveAndCall(between) = site.rest {
        stub.extend(between);
    }
    if site.number == CLONE {
        stub.extend(IS_SHARED);
        *stub.last_mut()? = (HAS_STACK.len() + GO_BY_BYTES) as u8;
        stub.extend(HAS_STACK);
        *stub.last_mut()? = GO_BY_BYTES as u8;
    }
    if MADE.contains(&site.number) {
        go_by(&mut stub, at, doors.came, behind_at)?;
    }
    let mut back = behind;
    if STARTERS.contains(&site.number) {
        go_by(&mut stub, at, doors.loose, behind_at - size_of::<usize>())?;
        back = at + stub.len();
        stub.extend(SYSCALL);
        stub.extend(jump(at + stub.len(), behind)?);
    }
    Some(with_words(stub, [back, behind]))
}

/// The bytes of what [`go_by`] adds.
const GO_BY_BYTES: usize = 16;

/// Adds the way to `door`, with the address at which to go on in the stub's word at `word`.
fn go_by(stub: &mut Vec<u8>, at: usize, door: usize, word: usize) -> Option<()> {
    /// `lea -128(%rsp), %rsp`, behind the red zone.
    const BELOW: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
    /// `push` of the word at an offset from the instruction's end, which follows.
    const PUSH: [u8; 2] = [0xff, 0x35];
    stub.extend(BELOW);
    stub.extend(PUSH);
    let next = stub.len() + size_of::<u32>();
    stub.extend((word.checked_sub(next)? as u32).to_le_bytes());
    stub.extend(jump(at + stub.len(), door)?);
    Some(())
}

/// Returns the whole stub, with `words` at its end.
fn with_words(mut stub: Vec<u8>, words: [usize; 2]) -> Vec<u8> {
    stub.resize(STUB_BYTES - size_of_val(&words), 0xcc);
    stub.extend(words.map(usize::to_le_bytes).concat());
    stub
}

#[cfg(test)]
mod tests {
    //! The risk: code is overwritten that makes no child, or a jump leads nowhere.

    use super::*;

    const DOORS: Doors = Doors { came: 0x10_0000, loose: 0x10_1000 };

    /// `mov $number, %eax; syscall`.
    fn call(number: u32) -> [u8; 7] {
        let [a, b, ..] = number.to_le_bytes();
        [0xb8, a, b, 0, 0, 0x0f, 0x05]
    }

    /// `mov $9, %eax; mov %r12, %rdi; syscall`, as in musl's `mmap`.
    const MOVED: [u8; 10] = [0xb8, 9, 0, 0, 0, 0x4c, 0x89, 0xe7, 0x0f, 0x05];

    fn site(address: usize, number: u32) -> Site {
        Site { address, number, rest: Rest::Call }
    }

    fn find(code: &[u8], address: usize) -> Sites {
        let mut sites = Sites::default();
        sites.find_up_to(code, address, code.len());
        sites
    }

    #[test]
    fn the_calls_that_matter_are_found() {
        let code = [&[0x90; 3][..], &call(CLONE), &call(60), &call(CLONE3), &call(CLONE)[..6]];
        let found = find(&code.concat(), 0x40_0000);
        assert_eq!(found.all, [site(0x40_0003, CLONE), site(0x40_0011, CLONE3)]);
        assert!(!found.tell_of_memory() && !found.tell_of_starts());
        assert!(find(&[], 0).all.is_empty() && find(&call(CLONE)[1..], 0).all.is_empty());
        assert!(
            find(&call(FORK), PAGE_BYTES - 4).all.is_empty(),
            "the jump would lie in two pages"
        );
        let found = find(&MOVED, 0x40_0000);
        let rest = Rest::MoveAndCall([0x4c, 0x89, 0xe7]);
        assert_eq!(found.all, [Site { address: 0x40_0000, number: MMAP, rest }]);
        assert_eq!(found.all[0].behind(), 0x40_000a);
        for (at, byte) in [(5, 0x40), (6, 0x8d), (7, 0x27), (8, 0x90)] {
            let mut other = MOVED;
            other[at] = byte;
            assert!(find(&other, 0).all.is_empty(), "byte {at} is another");
        }
        assert!(find(&MOVED[..9], 0).all.is_empty());
        let found = find(&MUSL_CLONE, 0x40_0000);
        let rest = Rest::OfMusl;
        assert_eq!(found.all, [Site { address: 0x40_0000, number: CLONE, rest }]);
    }

    #[test]
    fn a_libc_is_known_by_its_calls() {
        let of = |numbers: &[u32]| {
            let code: Vec<u8> = numbers.iter().flat_map(|number| call(*number)).collect();
            find(&code, 0)
        };
        assert!(of(&[BRK, MMAP]).tell_of_memory() && !of(&[BRK]).tell_of_memory());
        assert!(of(&[BRK, MMAP, SCHED_GETAFFINITY]).tell_of_starts());
        assert!(!of(&[CLONE, EXECVE]).tell_of_starts());
        // `mov $204, %eax; ret`: a call that is none of those found may come behind.
        let code = [&call(BRK)[..], &call(MMAP), &call(SCHED_GETAFFINITY)[..5], &[0xc3]];
        assert!(!find(&code.concat(), 0).tell_of_starts());
    }

    #[test]
    fn forks_are_seen_where_calls_are_found_by_their_numbers() {
        const EXIT: u32 = 60;
        let of = |numbers: &[u32]| {
            let code: Vec<u8> = numbers.iter().flat_map(|number| call(*number)).collect();
            find(&code, 0)
        };
        assert!(of(&[EXIT]).tell_of_forks() && of(&[MMAP, CLONE]).tell_of_forks());
        // `syscall` alone: its number comes from elsewhere.
        assert!(!find(&[0x0f, 0x05, 0xc3], 0).tell_of_forks());
        assert!(!of(&[]).tell_of_forks() && !of(&[CLONE; STUBS + 1]).tell_of_forks());
        assert!(of(&[MMAP; STUBS + 1]).tell_of_forks());
    }

    #[test]
    fn stubs_come_before_the_jumps_to_them() {
        let all = vec![site(0x40_0003, CLONE); STUBS + 1];
        let changes = changes(&Sites { all, ..Sites::default() }, 0x20_0000, DOORS);
        assert_eq!(changes.len(), 2 * STUBS, "there is no room for more");
        assert!(changes[..STUBS].iter().all(|(at, stub)| *at < 0x40_0000 && stub.len() == 128));
        let (at, first) = &changes[STUBS];
        assert_eq!((*at, first[0]), (0x40_0003, 0xe9));
        assert!(jump(0, 1 << 32).is_none() && jump(1 << 32, 0).is_none());
        assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(jump(0x1000, 0x0fff), Some([0xe9, 0xfa, 0xff, 0xff, 0xff]));
    }

    /// Returns the word at `at` of a stub.
    fn word(stub: &[u8], at: usize) -> usize {
        usize::from_le_bytes(stub[at..at + 8].try_into().expect("it has two words"))
    }

    #[test]
    fn a_stub_goes_on_where_its_words_say() {
        const AT: usize = 0x20_0000;
        let moved = find(&MOVED, 0x40_0000).all[0];
        // Where the way to `came` begins, and where the thread's own call stands.
        for (site, made_at, own_at) in [
            (site(0x40_0000, FORK), Some(5), None),
            (moved, Some(8), None),
            (site(0x40_0000, CLONE), Some(18), Some(50)),
            (site(0x40_0000, CLONE3), None, Some(21)),
        ] {
            let stub = stub(site, AT, DOORS).expect("it is near");
            assert_eq!(word(&stub, 120), site.behind());
            assert_eq!(of_stubs(&stub), [site]);
            let jumps = |at: usize, to: usize| stub[at..at + 5] == jump(AT + at, to).unwrap();
            let pushes = |at: usize| {
                let by = u32::from_le_bytes(stub[at..at + 4].try_into().unwrap());
                at + 4 + by as usize
            };
            if let Some(at) = made_at {
                assert!(jumps(at + 11, DOORS.came) && pushes(at + 7) == 120, "{stub:x?}");
            }
            if let Some(at) = own_at {
                assert!(jumps(at - 5, DOORS.loose) && pushes(at - 9) == 112, "{stub:x?}");
                assert_eq!((word(&stub, 112), &stub[at..at + 2]), (AT + at, &SYSCALL[..]));
                assert!(jumps(at + 2, site.behind()));
            }
            if site.number == CLONE {
                assert_eq!([13 + usize::from(stub[12]), 18 + usize::from(stub[17])], [34, 34]);
            }
        }
        let site = Site { address: 0x40_0000, number: CLONE, rest: Rest::OfMusl };
        let stub = stub(site, AT, DOORS).unwrap();
        assert_eq!((word(&stub, 120), &stub[16..23]), (AT + 16, &MUSL_CLONE[..]));
        assert_eq!(stub[23..28], jump(AT + 23, 0x40_0007).unwrap());
        assert_eq!(of_stubs(&stub), [site]);
        assert!(of_stubs(&[0xcc; STUBS_BYTES]).is_empty());
    }
}
