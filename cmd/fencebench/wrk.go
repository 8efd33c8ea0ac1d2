package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// wrkResult is what conf/put.lua prints.
type wrkResult struct {
	Requests      int     `json:"requests"`
	Seconds       float64 `json:"seconds"`
	P50           float64 `json:"p50_us"`
	P99           float64 `json:"p99_us"`
	Errors        int     `json:"errors"`
	ErrorStatuses int     `json:"error_statuses"` // 400 and above; wrk does not say which
}

// runWrk sends a small workload with wrk.
func (l *lab) runWrk(ctx context.Context, spec loadSpec) (loadResult, error) {
	wrk := lookup("wrk")
	if wrk == "" {
		return loadResult{}, errors.New("wrk is not installed: apt-get install wrk, or leave out --load")
	}
	script := filepath.Join(l.dir, "put.lua")
	text, err := confFS.ReadFile("conf/put.lua")
	if err != nil {
		return loadResult{}, err
	}
	if err := os.WriteFile(script, text, 0o600); err != nil {
		return loadResult{}, err
	}
	// wrk counts whole seconds.
	cmd := exec.CommandContext(ctx, wrk, "-t1", "-c"+strconv.Itoa(spec.Conns), fmt.Sprintf("-d%ds", max(1, int(spec.Seconds+0.5))),
		"--timeout", "10s", "-s", script, "http://"+spec.Address+"/")
	endWithParent(cmd)
	token := ""
	if spec.Token != 0 {
		token = strconv.Itoa(spec.Token)
	}
	cmd.Env = append(os.Environ(), "METHOD="+spec.Method, "REQPATH="+spec.Path, "SIZE="+strconv.Itoa(spec.Size),
		"RESOURCES="+strconv.Itoa(max(spec.Resources, 1)), "TOKEN="+token, "RAISE="+map[bool]string{true: "1"}[spec.Raise])
	out, err := cmd.Output()
	if err != nil {
		return loadResult{}, fmt.Errorf("wrk: %w", err)
	}
	return parseWrk(out, spec)
}

func parseWrk(out []byte, spec loadSpec) (loadResult, error) {
	var w wrkResult
	_, line, ok := bytes.Cut(out, []byte("JSON"))
	if !ok {
		return loadResult{}, fmt.Errorf("wrk printed no result: %s", out)
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if err := json.Unmarshal(line, &w); err != nil {
		return loadResult{}, fmt.Errorf("read the result of wrk: %w", err)
	}
	r := loadResult{Requests: w.Requests, Seconds: w.Seconds, P50: w.P50, P99: w.P99, Errors: w.Errors, LastToken: spec.Token, Statuses: map[string]int{}}
	// wrk tells only good statuses from bad ones: a workload that wants refusals takes the bad ones for refusals, the others for failures.
	r.Statuses["204"], r.Statuses["412"] = w.Requests-w.ErrorStatuses, w.ErrorStatuses
	if spec.Raise {
		r.LastToken += w.Requests + 2*spec.Conns // some were sent and not answered
	}
	return r, nil
}
