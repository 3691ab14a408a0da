package dsync

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// now returns the time of a clock that goes on while the machine is suspended, as the server's leases do:
// CLOCK_BOOTTIME.
func now() time.Duration {
	var spec syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&spec)), 0)
	if errno != 0 {
		return greaterOfBoth.now()
	}
	return time.Duration(spec.Nano())
}
