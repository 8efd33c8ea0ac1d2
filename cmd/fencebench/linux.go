//go:build linux

package main

import (
	"os/exec"
	"syscall"
)

// supported says why the program cannot run here.
func supported() error { return nil }

// endWithParent puts a process in a group of its own, which an interrupt on the terminal does not reach, and ends it with this one.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// inMemory says whether a directory is on a file system without a disk.
func inMemory(dir string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return false
	}
	return uint32(fs.Type) == tmpfs || uint32(fs.Type) == ramfs
}

func kernel() string {
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		return "unknown"
	}
	var b []byte
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return "Linux " + string(b)
}

// openFiles raises the limit of open files to n, as far as that is allowed, and returns what it is then.
func openFiles(n int) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return n // the first file too many says it
	}
	if l.Cur < uint64(n) {
		l.Cur = min(uint64(n), l.Max)
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) // the limit that is read next counts
		_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	}
	return int(min(l.Cur, uint64(n)))
}
