package proxy

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// The names of log attributes.
const (
	keyResource  = "resource"
	keyToken     = "token"
	keyPolicy    = "policy"
	keyOutcome   = "outcome"
	keyForwarded = "forwarded"
	keyStatus    = "status"
	keyMethod    = "method"
	keyPath      = "path"
	keyClient    = "client"
	keyDuration  = "dur"
	keyReason    = "reason"
	keyError     = "error"
)

// decided records what became of a write: one log line, one count, one entry among the last decisions. Bodies, credentials and query
// strings are never recorded: presigned URLs carry signatures.
func (x *exchange) decided(r rejection) {
	policy := ""
	if x.decision.Policy != nil {
		policy = x.decision.Policy.Name
	}
	x.p.metrics.writes.WithLabelValues(policy, r.outcome).Inc()
	d := Decision{
		Time: x.start, Client: x.client(), Method: clip(x.in.Method), Path: clip(x.path()), Policy: policy, Resource: string(r.resource),
		Token: clip(x.decision.TokenText), Outcome: r.outcome, Status: r.code, Forwarded: r.forwarded, Seconds: time.Since(x.start).Seconds(),
	}
	if r.err != nil {
		d.Reason = clip(r.err.Error())
	}
	x.p.decisions.add(d)
	level := slog.LevelInfo
	if r.outcome == statusInDoubt {
		level = slog.LevelWarn
	}
	if r.outcome == statusUnavailable {
		level = slog.LevelError
	}
	if !x.p.log.Enabled(context.Background(), level) {
		return
	}
	x.p.log.LogAttrs(context.Background(), level, "write",
		slog.String(keyOutcome, d.Outcome), slog.String(keyForwarded, d.Forwarded), slog.Int(keyStatus, d.Status),
		slog.String(keyPolicy, d.Policy), slog.String(keyResource, d.Resource), slog.String(keyToken, d.Token),
		slog.String(keyMethod, d.Method), slog.String(keyPath, d.Path), slog.String(keyClient, d.Client),
		slog.Duration(keyDuration, time.Since(x.start)), slog.String(keyReason, d.Reason))
}

// unfenced records a write that went by without a token, because its policy says so.
func (x *exchange) unfenced(err error) {
	if safe(x.in.Method) || x.decision.Action != policies.Pass {
		return
	}
	r := rejection{outcome: statusUnfenced, forwarded: "yes", resource: x.resource(), err: err}
	x.decided(r)
}

// path is the target without its query.
func (x *exchange) path() string {
	path, _, _ := strings.Cut(x.target, "?")
	if path == "" {
		path, _, _ = strings.Cut(x.in.RequestURI, "?")
	}
	return path
}

// attrs are the attributes of a log line about this request.
func (x *exchange) attrs(more ...any) []any {
	return append([]any{keyResource, string(x.resource()), keyToken, clip(x.decision.TokenText), keyClient, x.client()}, more...)
}

func itoa(n int) string { return strconv.Itoa(n) }

func lower(s string) string { return strings.ToLower(s) }
