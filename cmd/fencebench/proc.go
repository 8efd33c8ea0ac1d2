package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = time.Second / 100

// procStat is what /proc/PID/stat says of a process.
type procStat struct {
	parent int
	cpu    time.Duration // utime + stime
	rss    int64         // bytes
}

// usage is what the processes of a peer used, together.
type usage struct {
	cpu       time.Duration
	rss       int64
	processes int
}

// snapshot reads every process below root, which is /proc.
func snapshot(root string) (map[int]procStat, error) {
	files, err := filepath.Glob(filepath.Join(root, "[0-9]*", "stat"))
	if err != nil {
		return nil, err
	}
	procs := make(map[int]procStat, len(files))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		pid, st, err := parseStat(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		procs[pid] = st
	}
	if len(procs) == 0 {
		return nil, fmt.Errorf("no process in %s: mount proc there", root)
	}
	return procs, nil
}

// parseStat reads a line of proc(5)'s stat. The name of the program stands in parentheses and may hold anything.
func parseStat(line []byte) (pid int, st procStat, err error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return 0, st, errors.New("no program name")
	}
	fields := strings.Fields(string(line[end+1:]))
	if len(fields) < 22 {
		return 0, st, errors.New("too few fields")
	}
	var n [5]int64
	for i, text := range []string{strings.TrimSpace(string(line[:open])), fields[1], fields[11], fields[12], fields[21]} {
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, st, err
		}
	}
	return int(n[0]), procStat{parent: int(n[1]), cpu: time.Duration(n[2]+n[3]) * tick, rss: n[4] * int64(os.Getpagesize())}, nil
}

// family is the given processes and all their descendants.
func family(procs map[int]procStat, roots []int) []int {
	children := map[int][]int{}
	for pid, st := range procs {
		children[st.parent] = append(children[st.parent], pid)
	}
	var all []int
	seen := map[int]bool{}
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		pid := todo[0]
		if _, ok := procs[pid]; !ok || seen[pid] {
			continue
		}
		seen[pid] = true
		all = append(all, pid)
		todo = append(todo, children[pid]...)
	}
	return all
}

// used adds up what the given processes and their descendants used so far.
func used(root string, roots []int) (usage, error) {
	procs, err := snapshot(root)
	if err != nil {
		return usage{}, err
	}
	var u usage
	for _, pid := range family(procs, roots) {
		u.cpu += procs[pid].cpu
		u.rss += procs[pid].rss
		u.processes++
	}
	return u, nil
}
