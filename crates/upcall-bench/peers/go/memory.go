package main

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	page            = 4096
	stride          = 256 * 1024
	sysUserfaultfd  = 323
	uffdUserMode    = 1
	uffdAPI         = 0xAA
	uffdioAPI       = 0xC018AA3F
	uffdioRegister  = 0xC020AA00
	registerMissing = 1
	madvNoHugePage  = 15
	fadvDontNeed    = 4
)

var sink byte

//go:noinline
func touchByte(memory []byte, index int) { sink = memory[index] }

// memory is a range whose every `step`th byte faults when it is touched first.
type memory struct {
	bytes []byte
	step  int
}

func (m *memory) touch(index int) bool {
	if index*m.step >= len(m.bytes) {
		return false
	}
	touchByte(m.bytes, index*m.step)
	return true
}

// faulting is memory whose faults the helper process behind standard input resolves.
func faulting(pages int) *memory {
	flags := uintptr(syscall.O_CLOEXEC | syscall.O_NONBLOCK | uffdUserMode)
	fd, _, errno := syscall.Syscall(sysUserfaultfd, flags, 0, 0)
	if errno != 0 {
		fail(exitSkip, "userfaultfd is not to be had here: %v", errno)
	}
	ioctl := func(request uintptr, argument unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(argument)); errno != 0 {
			fail(1, "userfaultfd: %v", errno)
		}
	}
	api := [3]uint64{uffdAPI}
	ioctl(uffdioAPI, unsafe.Pointer(&api))
	protection := syscall.PROT_READ | syscall.PROT_WRITE
	mapping := syscall.MAP_PRIVATE | syscall.MAP_ANON | syscall.MAP_NORESERVE
	bytes, err := syscall.Mmap(-1, 0, pages*page, protection, mapping)
	if err != nil {
		fail(1, "mmap: %v", err)
	}
	syscall.Madvise(bytes, madvNoHugePage)
	begin := uint64(uintptr(unsafe.Pointer(&bytes[0])))
	register := [4]uint64{begin, uint64(len(bytes)), registerMissing}
	ioctl(uffdioRegister, unsafe.Pointer(&register))
	if err := syscall.Sendmsg(0, []byte{1}, syscall.UnixRights(int(fd)), nil, 0); err != nil {
		fail(1, "sending the userfaultfd: %v", err)
	}
	if n, _ := syscall.Read(0, make([]byte, 1)); n != 1 {
		fail(1, "the resolver of page faults went away")
	}
	return &memory{bytes, page}
}

// cold maps a file whose pages are not in memory.
func cold(path string, pages int) *memory {
	if info, err := os.Stat(path); err != nil || info.Size() < int64(pages*stride) {
		block := make([]byte, pages*stride)
		for i := range block {
			block[i] = 0x55
		}
		if err := os.WriteFile(path, block, 0o600); err != nil {
			fail(1, "%v", err)
		}
	}
	file, err := os.Open(path)
	if err != nil {
		fail(1, "%v", err)
	}
	if err := file.Sync(); err != nil {
		fail(1, "%v", err)
	}
	syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, fadvDontNeed, 0, 0)
	bytes, err := syscall.Mmap(int(file.Fd()), 0, pages*stride, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		fail(1, "mmap: %v", err)
	}
	syscall.Madvise(bytes, syscall.MADV_RANDOM)
	return &memory{bytes, stride}
}

func majorFaults() int64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Majflt
}
