//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func supported() error {
	return errors.New("CPU and memory are read from /proc: run fencebench on Linux")
}

func endWithParent(*exec.Cmd) {}

func inMemory(string) bool { return false }

func kernel() string { return "unknown" }

func openFiles(n int) int { return n }
