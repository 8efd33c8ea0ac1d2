package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/lease"
)

// leaseVariables are the environment variables that name the listener for leases. The second is serve's.
func leaseVariables() []string { return []string{"FENCEPROXY_LEASES", "FENCEPROXY_LEASES_LISTEN"} }

// leaseClient asks the listener for leases of a running proxy.
type leaseClient struct {
	url  string
	http *http.Client
}

func newLeaseClient(c *cli.Context) (*leaseClient, error) {
	at := strings.TrimRight(c.String("leases"), "/")
	if at == "" { // a variable that is set to nothing hides the next one
		at = cmp.Or(os.Getenv(leaseVariables()[1]), policies.DefaultLeasesListen)
	}
	if at == "off" {
		return nil, withHint(usagef("leases are switched off"), "name the address of a listener for leases with --leases")
	}
	at, tr, err := reach(c, "leases", at)
	if err != nil {
		return nil, err
	}
	tr.DisableKeepAlives = true // one that was left open over a pause is of no use, and a renewal must not be lost on it
	return &leaseClient{at, &http.Client{Transport: tr}}, nil
}

// leaseRefusal is a refusal by the proxy.
type leaseRefusal struct {
	lease.Problem
	retry time.Duration // when to ask again; 0: never
}

// Error says what the proxy said.
func (e *leaseRefusal) Error() string { return e.Detail }

// final reports whether the lease that was to be renewed is lost.
func (e *leaseRefusal) final() bool { return e.Type == lease.TypeGone || e.Type == lease.TypeNotHolder }

func (l *leaseClient) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(body))
	if err != nil {
		return usagef("--leases: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.http.Do(req)
	if err != nil {
		return withHint(err, reachHint(err, "leases", "is the proxy running, with leases.listen (or --leases-listen) at --leases?"))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("%s answered %s and broke off: %w", l.url, resp.Status, err)
	}
	if resp.StatusCode < 300 {
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(text, out); err != nil {
			return l.foreign(resp.StatusCode)
		}
		return nil
	}
	var p struct {
		lease.Problem
		Forwarded string `json:"forwarded"` // by the listener for writes
	}
	if json.Unmarshal(text, &p) != nil || p.Detail == "" || p.Type == "" || p.Forwarded != "" {
		return l.foreign(resp.StatusCode)
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // without it 0: never
	return &leaseRefusal{p.Problem, time.Duration(seconds) * time.Second}
}

func (l *leaseClient) foreign(code int) error {
	return withHint(fmt.Errorf("%s answered %d %s, not as a listener for leases does", l.url, code, http.StatusText(code)),
		"--leases takes the address of leases.listen, not the one that clients write to")
}

// callTimeout bounds a request that does not wait for a lease.
const callTimeout = 30 * time.Second

// acquire asks for a lease until it is there, or wait is over.
func (l *leaseClient) acquire(ctx context.Context, name string, ttl, wait time.Duration, owner string) (lease.Granted, error) {
	end := time.Now().Add(wait)
	for reached := false; ; {
		left := min(max(0, time.Until(end)), lease.MaxWait).Round(time.Millisecond)
		var g lease.Granted
		once, cancel := context.WithTimeout(ctx, left+callTimeout)
		err := l.call(once, http.MethodPost, "/v1/leases/"+url.PathEscape(name), map[string]string{"ttl": ttl.String(), "wait": left.String(), "owner": owner}, &g)
		cancel()
		refusal, refused := errors.AsType[*leaseRefusal](err)
		if err == nil && g.Token != "" && g.Secret != "" {
			return g, nil
		} else if err == nil {
			return g, l.foreign(http.StatusCreated)
		}
		reached = reached || refused
		if ctx.Err() != nil || !reached || refused && refusal.retry == 0 || time.Until(end) <= 0 {
			return g, err
		}
		if refused && refusal.Type == lease.TypeHeld {
			continue // it has waited
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Second, time.Until(end))):
		}
	}
}

func (l *leaseClient) renew(ctx context.Context, name, secret string) (out lease.Renewed, err error) {
	err = l.call(ctx, http.MethodPost, "/v1/renew/"+url.PathEscape(name), map[string]string{"secret": secret}, &out)
	return out, err
}

func (l *leaseClient) release(ctx context.Context, name, secret string) error {
	return l.call(ctx, http.MethodPost, "/v1/release/"+url.PathEscape(name), map[string]string{"secret": secret}, nil)
}

func (l *leaseClient) show(ctx context.Context, name string) (out lease.Shown, err error) {
	err = l.call(ctx, http.MethodGet, "/v1/leases/"+url.PathEscape(name), struct{}{}, &out)
	return out, err
}
