//! The functions that compilers call without being asked: `memcpy`, `memmove`, `memset`, `memcmp`,
//! `bcmp` and `strlen`.
//!
//! Taken from outside, they would be the program's own where it has some, as sanitizers and
//! profilers do. Those keep figures in memory that may be away, so the service would wait for
//! itself. So the library brings its own, hidden: no other object sees them, and none of another
//! object comes first.
//!
//! They are assembly, because a compiler turns a loop that copies into a call of `memcpy`, and
//! because nothing else defines a symbol that the linker sees and the program does not. Short
//! ranges are moved by words that overlap, all of them loaded before the first is stored; longer
//! ranges by 64 bytes at a time, and long ones by the processor's own instructions.
//!
//! The names are in the preload library only. Tests call the same code by names of ours.

use core::arch::global_asm;

/// The number of bytes from which on `rep movsb` and `rep stosb` are as fast as the loops here or
/// faster: they take some time to begin, then do 32 bytes in a cycle or more ("Enhanced REP
/// MOVSB/STOSB", Intel's Optimization Reference Manual, 3.7.6), where the loops do 16. (An EPYC
/// begins to move in 20 ns, and to fill in 40.)
const MOVED_BY_REP: usize = 1024;
const FILLED_BY_REP: usize = 4096;

#[cfg(feature = "preload")]
global_asm!(
    ".macro coldpress_name name, ours",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    ".set \\name, \\ours",
    ".endm",
    "coldpress_name memcpy, coldpress_move",
    "coldpress_name memmove, coldpress_move",
    "coldpress_name memset, coldpress_fill",
    "coldpress_name memcmp, coldpress_compare",
    "coldpress_name bcmp, coldpress_compare",
    "coldpress_name strlen, coldpress_length",
    ".purgem coldpress_name",
);

// `memmove(rdi to, rsi from, rdx bytes)`.
global_asm!(
    ".section .text.coldpress_move, \"ax\", @progbits",
    ".p2align 5",
    ".globl coldpress_move",
    ".hidden coldpress_move",
    ".type coldpress_move, @function",
    "coldpress_move:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jbe 20f",
    "movups xmm0, [rsi]",
    "movups xmm3, [rsi + rdx - 16]",
    "cmp rdx, 32",
    "jbe 11f",
    "cmp rdx, 128",
    "ja 30f",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "cmp rdx, 64",
    "jbe 10f",
    "movups xmm4, [rsi + 32]",
    "movups xmm5, [rsi + 48]",
    "movups xmm6, [rsi + rdx - 64]",
    "movups xmm7, [rsi + rdx - 48]",
    "movups [rdi + 32], xmm4",
    "movups [rdi + 48], xmm5",
    "movups [rdi + rdx - 64], xmm6",
    "movups [rdi + rdx - 48], xmm7",
    "10:",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "11:",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm3",
    "ret",
    // Up to 16 bytes.
    "20:",
    "cmp edx, 8",
    "jb 21f",
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    "21:",
    "cmp edx, 4",
    "jb 22f",
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    "22:",
    "cmp edx, 1",
    "jb 24f",
    "movzx ecx, byte ptr [rsi]",
    "je 23f",
    "movzx r8d, word ptr [rsi + rdx - 2]",
    "mov [rdi + rdx - 2], r8w",
    "23:",
    "mov [rdi], cl",
    "24:",
    "ret",
    // Above 128 bytes. xmm0 and xmm3 are the first and the last 16 bytes.
    "30:",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jb 50f",
    "neg rcx",
    "cmp rdx, {rep}",
    "jb 40f",
    "cmp rcx, rdx",
    "jae 60f",
    // Forward. r9: the next target, aligned; r10: the target of the last 64 bytes, which are loaded
    // before anything is stored, as the first 16 are.
    "40:",
    "movups xmm1, [rsi + rdx - 64]",
    "movups xmm2, [rsi + rdx - 48]",
    "movups xmm8, [rsi + rdx - 32]",
    "lea r10, [rdi + rdx - 64]",
    "lea r9, [rdi + 16]",
    "and r9, -16",
    "mov rcx, r9",
    "sub rcx, rdi",
    "add rsi, rcx",
    "41:",
    "movups xmm4, [rsi]",
    "movups xmm5, [rsi + 16]",
    "movups xmm6, [rsi + 32]",
    "movups xmm7, [rsi + 48]",
    "movaps [r9], xmm4",
    "movaps [r9 + 16], xmm5",
    "movaps [r9 + 32], xmm6",
    "movaps [r9 + 48], xmm7",
    "add rsi, 64",
    "add r9, 64",
    "cmp r9, r10",
    "jb 41b",
    "movups [r10], xmm1",
    "movups [r10 + 16], xmm2",
    "movups [r10 + 32], xmm8",
    "movups [r10 + 48], xmm3",
    "movups [rdi], xmm0",
    "ret",
    // Backward, as the target begins inside the source. r9: the end of the next target, aligned;
    // r10: the end of the first 64 bytes.
    "50:",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm8, [rsi + 48]",
    "lea r8, [rdi + rdx]",
    "lea r10, [rdi + 64]",
    "lea r9, [r8 - 1]",
    "and r9, -16",
    "mov rcx, r9",
    "sub rcx, rdi",
    "add rsi, rcx",
    "51:",
    "movups xmm4, [rsi - 64]",
    "movups xmm5, [rsi - 48]",
    "movups xmm6, [rsi - 32]",
    "movups xmm7, [rsi - 16]",
    "movaps [r9 - 64], xmm4",
    "movaps [r9 - 48], xmm5",
    "movaps [r9 - 32], xmm6",
    "movaps [r9 - 16], xmm7",
    "sub rsi, 64",
    "sub r9, 64",
    "cmp r9, r10",
    "ja 51b",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm8",
    "movups [r8 - 16], xmm3",
    "ret",
    "60:",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    ".size coldpress_move, . - coldpress_move",
    ".text",
    rep = const MOVED_BY_REP,
);

// `memset(rdi to, esi byte, rdx bytes)`.
global_asm!(
    ".section .text.coldpress_fill, \"ax\", @progbits",
    ".p2align 5",
    ".globl coldpress_fill",
    ".hidden coldpress_fill",
    ".type coldpress_fill, @function",
    "coldpress_fill:",
    "mov rax, rdi",
    "movzx esi, sil",
    "mov rcx, 0x0101010101010101",
    "imul rsi, rcx",
    "cmp rdx, 16",
    "jb 20f",
    "movq xmm0, rsi",
    "punpcklqdq xmm0, xmm0",
    "cmp rdx, 128",
    "ja 30f",
    "cmp rdx, 32",
    "jbe 11f",
    "cmp rdx, 64",
    "jbe 10f",
    "movups [rdi + 32], xmm0",
    "movups [rdi + 48], xmm0",
    "movups [rdi + rdx - 64], xmm0",
    "movups [rdi + rdx - 48], xmm0",
    "10:",
    "movups [rdi + 16], xmm0",
    "movups [rdi + rdx - 32], xmm0",
    "11:",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm0",
    "ret",
    // Below 16 bytes.
    "20:",
    "cmp edx, 8",
    "jb 21f",
    "mov [rdi], rsi",
    "mov [rdi + rdx - 8], rsi",
    "ret",
    "21:",
    "cmp edx, 4",
    "jb 22f",
    "mov [rdi], esi",
    "mov [rdi + rdx - 4], esi",
    "ret",
    "22:",
    "cmp edx, 1",
    "jb 24f",
    "je 23f",
    "mov [rdi + rdx - 2], si",
    "23:",
    "mov [rdi], sil",
    "24:",
    "ret",
    // Above 128 bytes. r9: the next target, aligned; r8: the target of the last 64 bytes.
    "30:",
    "cmp rdx, {rep}",
    "jae 40f",
    "movups [rdi], xmm0",
    "lea r8, [rdi + rdx - 64]",
    "lea r9, [rdi + 16]",
    "and r9, -16",
    "31:",
    "movaps [r9], xmm0",
    "movaps [r9 + 16], xmm0",
    "movaps [r9 + 32], xmm0",
    "movaps [r9 + 48], xmm0",
    "add r9, 64",
    "cmp r9, r8",
    "jb 31b",
    "movups [r8], xmm0",
    "movups [r8 + 16], xmm0",
    "movups [r8 + 32], xmm0",
    "movups [r8 + 48], xmm0",
    "ret",
    "40:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    ".size coldpress_fill, . - coldpress_fill",
    ".text",
    rep = const FILLED_BY_REP,
);

// `memcmp(rdi one, rsi other, rdx bytes)`.
global_asm!(
    ".section .text.coldpress_compare, \"ax\", @progbits",
    ".p2align 5",
    ".globl coldpress_compare",
    ".hidden coldpress_compare",
    ".type coldpress_compare, @function",
    "coldpress_compare:",
    "sub rdx, 64",
    "jb 31f",
    // 64 bytes at a time, as long as all are equal.
    "30:",
    "movups xmm0, [rdi]",
    "movups xmm1, [rdi + 16]",
    "movups xmm2, [rdi + 32]",
    "movups xmm3, [rdi + 48]",
    "movups xmm4, [rsi]",
    "movups xmm5, [rsi + 16]",
    "movups xmm6, [rsi + 32]",
    "movups xmm7, [rsi + 48]",
    "pcmpeqb xmm0, xmm4",
    "pcmpeqb xmm1, xmm5",
    "pcmpeqb xmm2, xmm6",
    "pcmpeqb xmm3, xmm7",
    "pand xmm0, xmm1",
    "pand xmm2, xmm3",
    "pand xmm0, xmm2",
    "pmovmskb eax, xmm0",
    "cmp eax, 0xffff",
    "jne 31f",
    "add rdi, 64",
    "add rsi, 64",
    "sub rdx, 64",
    "jae 30b",
    "31:",
    "add rdx, 48",
    "js 20f",
    "10:",
    "movups xmm0, [rdi]",
    "movups xmm1, [rsi]",
    "pcmpeqb xmm0, xmm1",
    "pmovmskb eax, xmm0",
    // All sixteen are equal when every bit is set.
    "sub eax, 0xffff",
    "jnz 11f",
    "add rdi, 16",
    "add rsi, 16",
    "sub rdx, 16",
    "jae 10b",
    "jmp 20f",
    "11:",
    // The lowest bit set in the difference is where the first clear bit was.
    "bsf ecx, eax",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx ecx, byte ptr [rsi + rcx]",
    "sub eax, ecx",
    "ret",
    // Fewer than 16 bytes are left: rdx is their number less 16.
    "20:",
    "add rdx, 8",
    "js 21f",
    "mov rax, [rdi]",
    "mov rcx, [rsi]",
    "cmp rax, rcx",
    "jne 22f",
    "add rdi, 8",
    "add rsi, 8",
    "sub rdx, 8",
    "21:",
    "add rdx, 8",
    "jz 24f",
    "23:",
    "movzx eax, byte ptr [rdi]",
    "movzx ecx, byte ptr [rsi]",
    "sub eax, ecx",
    "jnz 25f",
    "inc rdi",
    "inc rsi",
    "dec rdx",
    "jnz 23b",
    "24:",
    "xor eax, eax",
    "25:",
    "ret",
    // The first byte that differs decides, so it must be the highest.
    "22:",
    "bswap rax",
    "bswap rcx",
    "cmp rax, rcx",
    "sbb eax, eax",
    "or eax, 1",
    "ret",
    ".size coldpress_compare, . - coldpress_compare",
    ".text",
);

// `strlen(rdi text)`, for a variable of the environment, or a name.
global_asm!(
    ".section .text.coldpress_length, \"ax\", @progbits",
    ".p2align 5",
    ".globl coldpress_length",
    ".hidden coldpress_length",
    ".type coldpress_length, @function",
    "coldpress_length:",
    "mov rax, rdi",
    "jmp 11f",
    "10:",
    "inc rax",
    "11:",
    "cmp byte ptr [rax], 0",
    "jne 10b",
    "sub rax, rdi",
    "ret",
    ".size coldpress_length, . - coldpress_length",
    ".text",
);

#[cfg(test)]
mod tests {
    //! The risk: a byte too many or too few, at one length or place, in everything that is built on
    //! these.

    use core::ffi::{c_char, c_int};

    unsafe extern "C" {
        fn coldpress_move(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
        fn coldpress_fill(to: *mut u8, byte: c_int, bytes: usize) -> *mut u8;
        fn coldpress_compare(one: *const u8, other: *const u8, bytes: usize) -> c_int;
        fn coldpress_length(text: *const c_char) -> usize;
    }

    /// Returns all short lengths, and those around which another method begins.
    fn lengths() -> impl Iterator<Item = usize> {
        let long = [1023, 1024, 1025, 2048, 3000, 4095, 4096, 4097];
        (0..=300).chain(long)
    }

    /// Returns bytes of which neighbours differ, and those some way off too.
    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|index| (index * 31 + index / 256 * 7) as u8).collect()
    }

    #[test]
    fn bytes_are_moved_whole_and_nothing_beside_them() {
        for length in lengths() {
            // Apart, at the same place, and overlapping by nearly all or by little, both ways.
            let starts = [0, 1, 2, 7, 8, 15, 16, 17, 31, 63, 64, 65, length, length + 40];
            let pairs = starts.iter().flat_map(|&a| starts.map(|b| (a, b)));
            for (from, to) in pairs {
                let mut memory = bytes(2 * length + 200);
                let mut expected = memory.clone();
                expected.copy_within(50 + from..50 + from + length, 50 + to);
                let base = memory.as_mut_ptr();
                // SAFETY: both ranges are in the vector, which is longer by far.
                let result =
                    unsafe { coldpress_move(base.add(50 + to), base.add(50 + from), length) };
                assert_eq!(result.addr(), base.addr() + 50 + to);
                assert!(memory == expected, "{length} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn bytes_are_filled_whole_and_nothing_beside_them() {
        for length in lengths() {
            for start in 0..33 {
                let mut memory = bytes(length + 100);
                let mut expected = memory.clone();
                expected[start..start + length].fill(0xa5);
                let target = memory[start..].as_mut_ptr();
                // SAFETY: the range is in the vector. Only the lowest byte of the number counts.
                let result = unsafe { coldpress_fill(target, 0x7a5, length) };
                assert_eq!(result, target);
                assert!(memory == expected, "{length} bytes at {start}");
            }
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        for length in lengths() {
            let one = bytes(length + 1);
            let mut other = one.clone();
            // The byte after the range does not count.
            other[length] ^= 1;
            let compare = |other: &[u8]| {
                // SAFETY: both vectors are longer than that.
                unsafe { coldpress_compare(one.as_ptr(), other.as_ptr(), length) }
            };
            assert_eq!(compare(&other), 0, "{length} bytes");
            for at in 0..length {
                for bit in [1, 0x80] {
                    other[at] ^= bit;
                    // A later difference that says the opposite.
                    other[length - 1] ^= if at + 1 < length { !one[at] & 1 } else { 0 };
                    let expected = one[..length].cmp(&other[..length]) as c_int;
                    assert_eq!(compare(&other).signum(), expected, "{length} bytes, at {at}");
                    other[..length].copy_from_slice(&one[..length]);
                }
            }
        }
    }

    #[test]
    fn texts_are_measured() {
        for length in 0..100 {
            let mut text = vec![b'x'; length];
            text.push(0);
            // SAFETY: the text ends with a zero.
            assert_eq!(unsafe { coldpress_length(text.as_ptr().cast()) }, length);
        }
    }
}
