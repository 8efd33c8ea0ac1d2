package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
)

// adminVariables are the environment variables that name the admin listener. The second is serve's: in a container with it, marks and
// health find the proxy by themselves.
func adminVariables() []string { return []string{"FENCEPROXY_ADMIN", "FENCEPROXY_ADMIN_LISTEN"} }

// fromEnvironment reports whether an --admin came from there. urfave/cli counts such a flag as given.
func fromEnvironment(admin string) bool {
	return slices.ContainsFunc(adminVariables(), func(name string) bool { return os.Getenv(name) == admin })
}

func adminFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "admin", EnvVars: adminVariables(), Value: "http://" + policies.DefaultAdminListen, Usage: "ask the running proxy whose admin listener is at `URL`: http://, https:// or unix:///path"},
	}, reachFlags("admin")...)
}

// remote is the admin listener of a running proxy.
type remote struct {
	url, token, tokenFile string
	absent                string // hint for one that cannot be reached
	http                  *http.Client
}

func newRemote(c *cli.Context) (*remote, error) {
	token, err := adminToken(c.String("admin-token-file"))
	if errors.Is(err, fs.ErrNotExist) { // a new one would not be the proxy's
		return nil, withHint(err, "name the file of admin.token_file with --admin-token-file")
	}
	if err != nil {
		return nil, err
	}
	url := strings.TrimRight(c.String("admin"), "/")
	if url == "" { // a variable that is set to nothing hides the next one
		url = cmp.Or(os.Getenv(adminVariables()[1]), policies.DefaultAdminListen)
	}
	if url == "off" {
		return nil, withHint(usagef("the admin listener is switched off"), "name the address of another one with --admin")
	}
	url, tr, err := reach(c, "admin", url)
	if err != nil {
		return nil, err
	}
	tr.ResponseHeaderTimeout = time.Minute
	return &remote{
		url: url, token: token, tokenFile: c.String("admin-token-file"),
		absent: "is the proxy running? For a stopped one name its directory with --dir",
		http:   &http.Client{Transport: tr},
	}, nil
}

// call sends a request and has read take a good answer.
func (r *remote) call(ctx context.Context, method, path string, body io.Reader, read func(io.Reader) error) error {
	resp, err := r.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return read(resp.Body)
	}
	var e struct {
		Error string `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("%s answered %s and broke off: %w", r.url, resp.Status, err)
	}
	if json.Unmarshal(text, &e) != nil || e.Error == "" {
		return r.foreign(resp.StatusCode)
	}
	err = fmt.Errorf("%s: %s", resp.Status, e.Error)
	switch {
	case resp.StatusCode == http.StatusForbidden:
		return withHint(err, "start the proxy with --admin-token-file FILE, or stop it and name its directory with --dir")
	case resp.StatusCode == http.StatusUnauthorized && r.tokenFile != "":
		return withHint(err, "the token in "+r.tokenFile+" is another one; the proxy read its own when it started")
	case resp.StatusCode == http.StatusUnauthorized:
		return withHint(err, "name the file of admin.token_file with --admin-token-file")
	case resp.StatusCode == http.StatusConflict:
		return withHint(err, lowerHint)
	}
	return err
}

// ask sends a request and returns a small answer whatever its status.
func (r *remote) ask(ctx context.Context, method, path string, body io.Reader) (code int, text []byte, err error) {
	resp, err := r.send(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, text, err
}

func (r *remote) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, body)
	if err != nil {
		return nil, usagef("--admin: %w", err)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, withHint(err, reachHint(err, "admin", r.absent))
	}
	return resp, nil
}

// foreign is the error for an answer that no admin listener gives.
func (r *remote) foreign(code int) error {
	return withHint(fmt.Errorf("%s answered %d %s, not as an admin listener does", r.url, code, http.StatusText(code)),
		"--admin takes the address of admin.listen, not the one that clients use")
}
