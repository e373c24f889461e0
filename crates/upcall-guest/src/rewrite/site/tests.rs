//! Windows on hand-assembled functions, and stubs made for them.

use super::*;
use crate::rewrite::stub;
use crate::rewrite::unwind::Function;

const AT: usize = 0x10_0000;

fn decode(bytes: &[u8]) -> FunctionCode {
    decode_with(bytes, Vec::new())
}

fn decode_with(bytes: &[u8], landing_pads: Vec<usize>) -> FunctionCode {
    let image = Image::of_code(AT, bytes);
    let function = Function {
        range: AT..AT + bytes.len(),
        landing_pads,
        signal_trampoline: false,
        covered: bytes.len(),
    };
    FunctionCode::decode(&image, &function).expect("the image holds the function")
}

fn window(code: &FunctionCode) -> Result<Window, Reason> {
    let index = code
        .instructions
        .iter()
        .position(|i| i.code() == Code::Syscall)
        .expect("the function has a system call");
    choose(code, index, code.constant_in_eax(index), 0)
}

fn range(window: &Window) -> Range<usize> {
    window.range.start - AT..window.range.end - AT
}

#[test]
fn the_instruction_that_loads_the_number_covers_the_jump() {
    // push rbx; mov eax,39; syscall; cmp rax,-4096; ret
    let code = decode(b"\x53\xb8\x27\0\0\0\x0f\x05\x48\x3d\0\xf0\xff\xff\xc3");
    let window = window(&code).expect("five bytes stand before the call");
    assert_eq!(range(&window), 1..8);
    assert!(window.is_quiet() && !window.wide && window.after.is_empty());
    assert_eq!(code.constant_in_eax(2), Some(39));
}

#[test]
fn a_jump_to_the_call_moves_the_window_behind_it() {
    // jmp +5; mov eax,39; 7: syscall; cmp rax,-4096; ret
    let code = decode(b"\xeb\x05\xb8\x27\0\0\0\x0f\x05\x48\x3d\0\xf0\xff\xff\xc3");
    let window = window(&code).expect("eight bytes stand from the call on");
    assert_eq!(range(&window), 7..15);
    assert!(window.before.is_empty() && window.after.len() == 1);
    assert_eq!(code.constant_in_eax(2), None);
}

#[test]
fn jumps_to_and_behind_the_call_leave_no_window() {
    // jmp 4; jmp 6; 4: syscall; 6: ret
    let code = decode(b"\xeb\x02\xeb\x02\x0f\x05\xc3");
    assert_eq!(window(&code).err(), Some(Reason::NoWindow));
}

#[test]
fn a_jump_between_the_bytes_of_a_neighbour_is_a_jump_into_the_window() {
    // 0: je 3; 2: lock cmpxchg [rdi],esi, whose prefix is jumped over; 6: syscall; ret
    let code = decode(b"\x74\x01\xf0\x0f\xb1\x37\x0f\x05\xc3");
    assert_eq!(window(&code).err(), Some(Reason::NoWindow));
    // 0: syscall; jae 5; 4: syscall; mov eax,39
    let code = decode(b"\x0f\x05\x73\x01\x0f\x05\xb8\x27\0\0\0");
    let index = code.index_of(AT + 4).expect("the second call");
    assert_eq!(choose(&code, index, None, 0).err(), Some(Reason::NoWindow));
}

#[test]
fn a_landing_pad_counts_as_a_target() {
    let bytes = b"\xb8\x27\0\0\0\x0f\x05\x48\x3d\0\xf0\xff\xff\xc3";
    let code = decode_with(bytes, vec![AT + 5, AT + 7]);
    assert_eq!(window(&code).err(), Some(Reason::NoWindow));
}

#[test]
fn a_call_is_never_moved() {
    // call 0; syscall; call 0; ret
    let code = decode(b"\xe8\xfb\xff\xff\xff\x0f\x05\xe8\xf4\xff\xff\xff\xc3");
    assert_eq!(window(&code).err(), Some(Reason::NoWindow));
}

#[test]
fn rt_sigreturn_is_never_touched() {
    let code = decode(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05\x0f\x1f\x80\0\0\0\0");
    assert_eq!(window(&code).err(), Some(Reason::Sigreturn));
}

#[test]
fn vector_instructions_ask_for_the_wide_entry_and_bit_manipulation_does_not() {
    let wide = decode(b"\xc5\xfd\x6f\x07\xb8\x27\0\0\0\x0f\x05\xc3"); // vmovdqa ymm0,[rdi]
    assert!(window(&wide).is_ok_and(|w| w.wide));
    let x87 = decode(b"\xd9\xe8\xb8\x27\0\0\0\x0f\x05\xdd\xd8\xc3"); // fld1
    assert!(window(&x87).is_ok_and(|w| w.wide));
    // As swapcontext: fnstenv [rcx]; stmxcsr [rdi]; ...; fldenv [rcx]; ldmxcsr [rdx]
    let control = decode(b"\xd9\x31\x0f\xae\x1f\xb8\x0e\0\0\0\x0f\x05\xd9\x21\x0f\xae\x12\xc3");
    assert!(window(&control).is_ok_and(|w| !w.wide));
    let integer = decode(b"\xc4\xe2\x79\xf7\xc0\xb8\x27\0\0\0\x0f\x05\xc3"); // shlx eax,eax,eax
    assert!(window(&integer).is_ok_and(|w| !w.wide));
}

#[test]
fn an_indirect_jump_through_an_unreadable_table_forbids_windows() {
    // lea rdx,[rip+0x1000]; movsxd rax,[rdx+rax*4]; add rax,rdx; jmp rax; mov eax,39; syscall; ret
    let code = decode(
        b"\x48\x8d\x15\0\x10\0\0\x48\x63\x04\x82\x48\x01\xd0\xff\xe0\xb8\x27\0\0\0\x0f\x05\xc3",
    );
    assert_eq!(window(&code).err(), Some(Reason::UnknownTargets));
}

#[test]
fn a_readable_table_gives_its_targets() {
    // The same with the table behind the code: its only entry is the call itself.
    let mut bytes = b"\x48\x8d\x15\x11\0\0\0\x48\x63\x04\x82\x48\x01\xd0\xff\xe0\xb8\x27\0\0\0\
        \x0f\x05\xc3"
        .to_vec();
    let table = bytes.len();
    assert_eq!(table, 24);
    bytes.extend_from_slice(&(21i32 - 24).to_le_bytes());
    bytes.extend_from_slice(&i32::MAX.to_le_bytes());
    let image = Image::of_code(AT, &bytes);
    let function = Function {
        range: AT..AT + table,
        landing_pads: Vec::new(),
        signal_trampoline: false,
        covered: table,
    };
    let code = FunctionCode::decode(&image, &function).expect("the image holds the function");
    assert!(code.targets.contains(&(AT + 21)), "{:x?}", code.targets);
    assert!(!code.unknown_targets);
    assert_eq!(window(&code).err(), Some(Reason::NoWindow));
}

#[test]
fn behind_bytes_that_are_no_instruction_anything_may_jump() {
    // mov eax,1; syscall; ret; (no instruction); jmp into the window
    let code = decode(b"\xb8\x01\0\0\0\x0f\x05\xc3\x06\xeb\xfa");
    assert_eq!(window(&code).err(), Some(Reason::UnknownTargets));
    let code = decode(b"\xb8\x01\0\0\0\x0f\x05\xc3");
    assert!(window(&code).is_ok());
}

#[test]
fn bytes_of_a_call_inside_an_immediate_are_no_instruction() {
    // mov eax,0x050f; ret
    let code = decode(b"\xb8\x0f\x05\0\0\xc3");
    assert_eq!(code.index_of(AT + 1), None);
    assert!(code.instructions.iter().all(|i| i.code() != Code::Syscall));
}

#[test]
fn code_behind_the_unwind_entry_counts_while_control_falls_through() {
    let bytes = b"\xb8\x38\0\0\0\x0f\x05\xc3\x0f\x05\xc3";
    let image = Image::of_code(AT, bytes);
    let function = Function {
        range: AT..AT + bytes.len(),
        landing_pads: Vec::new(),
        signal_trampoline: false,
        covered: 5,
    };
    let code = FunctionCode::decode(&image, &function).expect("the image holds the function");
    assert_eq!(code.index_of(AT + 5), Some(1));
    assert_eq!(
        code.index_of(AT + 8),
        None,
        "nothing falls through a return"
    );
}

#[test]
fn a_neighbour_that_addresses_by_rip_reads_the_same_place_from_the_stub() {
    // mov eax,[rip+0x100]; syscall; ret
    let bytes = b"\x8b\x05\0\x01\0\0\x0f\x05\xc3";
    let code = decode(bytes);
    let window = window(&code).expect("six bytes stand before the call");
    let before = window.before[0]
        .relative
        .as_ref()
        .expect("it depends on its address");
    let old = before.ip_rel_memory_address();
    let to = AT + 0x1234_5670;
    let stub = stub::build(&window, &bytes[range(&window)], to, to - 64).expect("it is near");
    let mut decoder =
        iced_x86::Decoder::with_ip(64, &stub.bytes, to as u64, iced_x86::DecoderOptions::NONE);
    let moved = decoder.decode();
    assert_eq!(moved.code(), before.code());
    assert_eq!(moved.ip_rel_memory_address(), old);
}

#[test]
fn a_neighbour_that_cannot_reach_its_operand_is_refused() {
    let bytes = b"\x8b\x05\0\0\0\x80\x0f\x05\xc3";
    let window = window(&decode(bytes)).expect("six bytes stand before the call");
    let to = AT + 0x1234_5670;
    let stub = stub::build(&window, &bytes[range(&window)], to, to - 64);
    assert!(matches!(stub, Err(Reason::NotRelocatable(_))), "{stub:?}");
}

#[test]
fn a_moved_conditional_branch_keeps_its_target() {
    // 0: jmp 4; nop; nop; 4: syscall; test eax,eax; je 0; ret
    let bytes = b"\xeb\x02\x90\x90\x0f\x05\x85\xc0\x74\xf6\xc3";
    let window = window(&decode(bytes)).expect("six bytes stand from the call on");
    assert_eq!(range(&window), 4..10);
    let to = AT + 0x5000;
    let stub = stub::build(&window, &bytes[range(&window)], to, to - 64).expect("it is near");
    let branch =
        iced_x86::Decoder::with_ip(64, &stub.bytes, to as u64, iced_x86::DecoderOptions::NONE)
            .into_iter()
            .find(Instruction::is_jcc_short_or_near);
    assert_eq!(branch.map(|b| b.near_branch_target()), Some(AT as u64));
}

#[test]
fn every_instruction_of_a_stub_stands_for_an_original() {
    let bytes = b"\x53\xb8\x27\0\0\0\x0f\x05\xc3";
    let window = window(&decode(bytes)).expect("five bytes stand before the call");
    let to = AT + 0x5000;
    let stub = stub::build(&window, &bytes[range(&window)], to, to - 64).expect("it is near");
    assert_eq!(stub.rows[0].original(), AT + 1);
    let at = |pc: usize| *stub.rows.iter().rfind(|r| r.pc <= pc).expect("a row");
    assert_eq!(
        (at(stub.resume).original(), at(stub.resume).skipped),
        (AT + 8, 0)
    );
    assert_eq!(
        (at(stub.at_site).original(), at(stub.at_site).skipped),
        (AT + 6, 0)
    );
    assert_eq!(
        (at(stub.resume - 1).original(), at(stub.resume - 1).skipped),
        (AT + 8, 128)
    );
    assert!(stub.rows.is_sorted_by_key(|r| r.pc));
    let jump = stub::jump(&window.range, stub.range.start).expect("it is near");
    assert_eq!(jump, [0xe9, 0xfa, 0x4f, 0, 0, 0xcc, 0xcc]);
}

fn believed(bytes: &[u8]) -> bool {
    let image = Image::of_code(AT, bytes);
    let scan = scan(&image, &[]);
    let at = bytes
        .windows(2)
        .position(|pair| pair == b"\x0f\x05")
        .expect("the bytes hold a pair");
    match scan.sites.as_slice() {
        [] => {
            assert_eq!(scan.other_pairs, 1);
            false
        }
        [site] => {
            assert_eq!(site.address, AT + at);
            assert!(matches!(site.window, Err(Reason::NoFunction)));
            true
        }
        more => panic!("one pair, {} sites", more.len()),
    }
}

#[test]
fn a_call_without_unwind_entry_is_believed() {
    // mov eax,39; syscall; ret
    assert!(believed(b"\xb8\x27\0\0\0\x0f\x05\xc3"));
    // Go: mov r10,rsi; mov rdx,rdi; mov rsi,rcx; mov rdi,rbx; syscall; cmp rax,-4095; jbe
    assert!(believed(
        b"\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf\x0f\x05\x48\x3d\x01\xf0\xff\xff\x76\x20"
    ));
}

#[test]
fn data_between_code_is_no_call() {
    // Out of a cipher's tables.
    assert!(!believed(
        b"\x65\xff\xcc\xd1\x09\xf1\x7d\xef\x5b\x79\x5f\x47\x45\xcc\x02\xf7\x86\xfa\x28\xaa\x3f\x07\x1f\x02\
          \x0f\x05\x09\xe6\x92\xc6\xa8\x8f\x7f\x68\x29\xe6\xe9\x2c\xea\x36"
    ));
    assert!(!believed(
        &[b"\0".repeat(40).as_slice(), b"\x0f\x05\0\0\0\0\0\0"].concat()
    ));
    // A number that no system call has, and nothing else.
    assert!(!believed(b"\xb8\x27\x27\x27\x27\x0f\x05\xc3"));
}

#[test]
fn only_an_empty_function_can_be_diverted() {
    let padded = b"\xf3\x0f\x1e\xfa\xc3\x90\x90";
    assert_eq!(
        empty_function(&Image::of_code(AT, padded), AT),
        Some(AT..AT + 5)
    );
    let nops = b"\xc3\x66\x66\x2e\x0f\x1f\x84\0\0\0\0\0";
    assert_eq!(
        empty_function(&Image::of_code(AT, nops), AT),
        Some(AT..AT + 12)
    );
    let followed = b"\xc3\x90\xb8\x27\0\0\0\xc3";
    assert_eq!(empty_function(&Image::of_code(AT, followed), AT), None);
    let busy = b"\x50\x58\xc3\x90\x90\x90";
    assert_eq!(empty_function(&Image::of_code(AT, busy), AT), None);
}

fn on_all_paths(code: &FunctionCode) -> Option<u32> {
    let is_call = |i: &Instruction| i.code() == Code::Syscall;
    let index = code.instructions.iter().position(is_call);
    reaching::constant_in_eax(code, index.expect("the function has a system call"))
}

#[test]
fn a_number_that_is_loaded_before_a_loop_is_seen() {
    // mov r8d,202; 6: xor edx,edx; mov eax,r8d; syscall; test eax,eax; jne 6; ret
    let code = decode(b"\x41\xb8\xca\0\0\0\x31\xd2\x44\x89\xc0\x0f\x05\x85\xc0\x75\xf5\xc3");
    assert_eq!(code.constant_in_eax(3), None);
    assert_eq!(on_all_paths(&code), Some(202));
    // The same with rcx, which the kernel overwrites.
    let code = decode(b"\xb9\xca\0\0\0\x31\xd2\x89\xc8\x0f\x05\x85\xc0\x75\xf6\xc3");
    assert_eq!(on_all_paths(&code), None);
}

#[test]
fn a_number_must_be_the_same_on_every_path() {
    // test edi,edi; je 9; mov eax,A; jmp 14; 9+2: mov eax,B; syscall; ret
    let two = |first: u8, second: u8| {
        let mut bytes = b"\x85\xff\x74\x07\xb8\0\0\0\0\xeb\x05\xb8\0\0\0\0\x0f\x05\xc3".to_vec();
        (bytes[5], bytes[12]) = (first, second);
        decode(&bytes)
    };
    assert_eq!(on_all_paths(&two(202, 202)), Some(202));
    assert_eq!(on_all_paths(&two(202, 56)), None);
    // test edi,edi; je 9; mov eax,202; 9: syscall; ret: on one path the caller has chosen
    let code = decode(b"\x85\xff\x74\x05\xb8\xca\0\0\0\x0f\x05\xc3");
    assert_eq!(on_all_paths(&code), None);
}

#[test]
fn a_number_survives_a_call_unless_the_register_holds_what_it_returns() {
    // mov ebx,202; call +0; 10: mov eax,ebx; syscall; ret
    let mut code = decode(b"\xbb\xca\0\0\0\xe8\0\0\0\x10\x89\xd8\x0f\x05\xc3");
    assert_eq!(on_all_paths(&code), Some(202));
    // Another function may jump behind the load.
    code.enter_at(&BTreeSet::from([AT + 10]));
    assert_eq!(on_all_paths(&code), None);
    let code = decode(b"\xba\xca\0\0\0\xe8\0\0\0\x10\x89\xd0\x0f\x05\xc3");
    assert_eq!(on_all_paths(&code), None);
}

#[test]
fn behind_a_landing_pad_no_number_is_seen() {
    // mov r8d,202; 6: xor edx,edx; mov eax,r8d; syscall; ret
    let bytes = b"\x41\xb8\xca\0\0\0\x31\xd2\x44\x89\xc0\x0f\x05\xc3";
    assert_eq!(on_all_paths(&decode(bytes)), Some(202));
    assert_eq!(on_all_paths(&decode_with(bytes, vec![AT + 6])), None);
    // A constant in half of the register is none.
    let half = b"\x41\xb8\xca\0\0\0\x66\x41\xb8\x38\0\x44\x89\xc0\x0f\x05\xc3";
    assert_eq!(on_all_paths(&decode(half)), None);
}
