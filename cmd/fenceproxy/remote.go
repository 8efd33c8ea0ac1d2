package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
)

func adminFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "admin", EnvVars: []string{"FENCEPROXY_ADMIN"}, Value: "http://" + policies.DefaultAdminListen, Usage: "the admin listener of the running proxy, `URL`"},
	}
}

// remote is the admin listener of a running proxy.
type remote struct {
	url, token string
	http       *http.Client
}

func newRemote(c *cli.Context) (*remote, error) {
	token, err := adminToken(c.String("admin-token-file"))
	if err != nil {
		return nil, err
	}
	url := strings.TrimRight(c.String("admin"), "/")
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	return &remote{url: url, token: token, http: &http.Client{Transport: &http.Transport{Proxy: nil}}}, nil
}

// call sends a request and has read take a good answer.
func (r *remote) call(ctx context.Context, method, path string, body io.Reader, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, body)
	if err != nil {
		return usagef("--admin: %w", err)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return withHint(err, "is the proxy running? For a stopped one name its directory with --dir")
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
		return withHint(fmt.Errorf("%s answered %s, not as an admin listener does", r.url, resp.Status), "--admin takes the address of admin.listen, not the one that clients use")
	}
	err = fmt.Errorf("%s: %s", resp.Status, e.Error)
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return withHint(err, "name the file of admin.token_file with --admin-token-file")
	}
	return err
}
