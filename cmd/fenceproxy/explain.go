package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say which policy, resource and token a request has, and what would become of it",
		ArgsUsage: "METHOD URL",
		Description: `Without a running proxy, by the configuration alone:
  fenceproxy explain --config fenceproxy.yaml PUT /rides/7 -H 'Fencing-Token: 33'

A policy that reads the resource from the JSON body:
  fenceproxy explain --config fenceproxy.yaml POST /orders -H 'Fencing-Token: 33' --data '{"order": {"id": 7}}'

Ask a running proxy, which knows the marks too:
  fenceproxy explain --live PUT /rides/7 -H 'Fencing-Token: 33'`,
		Flags: append(append(explainFlags(), adminFlags()...),
			&cli.StringSliceFlag{Name: "header", Aliases: []string{"H"}, Usage: "add `HEADER` to the request, as with curl; may be repeated"},
			&cli.StringSliceFlag{Name: "client", Usage: "say that the client's certificate has `NAME`; may be repeated"},
			&cli.StringFlag{Name: "data", Aliases: []string{"d"}, Usage: "use `BODY` as that of the request; @FILE reads it from a file"},
			&cli.BoolFlag{Name: "live", DisableDefaultText: true, Usage: "ask the running proxy at --admin, which knows the marks"},
			jsonFlag(),
		),
		Action: explain,
	}
}

// explainFlags are the settings that decide what becomes of a request.
func explainFlags() []cli.Flag {
	return slices.DeleteFunc(overrideFlags(), func(f cli.Flag) bool { return !slices.Contains([]string{"config", "unmatched-writes"}, f.Names()[0]) })
}

func explain(c *cli.Context) error {
	q, err := explainRequest(c)
	if err != nil {
		return err
	}
	var e *proxy.Explanation
	if c.Bool("live") {
		for _, name := range []string{"config", "unmatched-writes"} {
			if c.IsSet(name) && !fromVariable(c, name) {
				return withHint(usagef("--live asks the running proxy, which has read its own configuration: --%s would change nothing", name),
					"give one of --live and --"+name)
			}
		}
		e, err = explainLive(c, q)
	} else {
		e, err = explainFile(c, q)
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, e)
	}
	_, err = e.WriteTo(c.App.Writer)
	return err
}

func explainRequest(c *cli.Context) (proxy.ExplainRequest, error) {
	args, err := arguments(c)
	if err != nil {
		return proxy.ExplainRequest{}, err
	}
	if len(args) != 2 {
		return proxy.ExplainRequest{}, withHint(usagef("explain needs a METHOD and a URL, and got %s", count(len(args), "argument")), "fenceproxy explain PUT /rides/7 -H 'Fencing-Token: 33'")
	}
	switch method, target := args[0], args[1]; {
	case strings.ContainsAny(method, "/:") && !isTarget(target):
		return proxy.ExplainRequest{}, withHint(usagef("the METHOD comes first, and %q is none", method), "fenceproxy explain "+target+" "+method)
	case !isTarget(target) && !(method == http.MethodConnect || method == http.MethodOptions && target == "*"):
		return proxy.ExplainRequest{}, withHint(usagef("%q is neither a path, which begins with /, nor a URL", target), "fenceproxy explain "+method+" /"+target)
	}
	q := proxy.ExplainRequest{Method: args[0], URL: args[1], Header: http.Header{}, Client: c.StringSlice("client")}
	for _, h := range c.StringSlice("header") {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return q, usagef("%q is not a header; write -H 'Name: value'", h)
		}
		q.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if c.IsSet("data") {
		data := c.String("data")
		if file, ok := strings.CutPrefix(data, "@"); ok {
			b, err := os.ReadFile(file)
			if err != nil {
				return q, fmt.Errorf("--data: %w", err)
			}
			data = string(b)
		}
		q.Body = []byte(data)
	}
	return q, nil
}

func isTarget(s string) bool { return strings.HasPrefix(s, "/") || strings.Contains(s, "://") }

// fromVariable reports whether the value of a flag came from the environment. urfave/cli counts such a flag as given.
func fromVariable(c *cli.Context, name string) bool {
	return c.String(name) == os.Getenv("FENCEPROXY_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
}

func explainFile(c *cli.Context, q proxy.ExplainRequest) (*proxy.Explanation, error) {
	cfg, err := explainConfig(c)
	if err != nil {
		return nil, err
	}
	e, err := proxy.Explain(cfg.Policies, q)
	if err != nil {
		return nil, &usageError{err}
	}
	for _, row := range cfg.Policies.Describe() {
		if row.Name == e.Policy && q.Body == nil && len(e.Resources) == 0 && strings.Contains(row.Resource, "{body.") {
			fmt.Fprintf(c.App.ErrWriter, "hint: the policy %s names the resource by the JSON body: give one with --data '{...}'\n", row.Name)
		}
	}
	return e, nil
}

// explainConfig loads the configuration. Which store it names does not matter here, nor whether it names one: --upstream may at serve.
func explainConfig(c *cli.Context) (*policies.Config, error) {
	const anyStore = "http://127.0.0.1:9000"
	over := policies.Overrides{UnmatchedWrites: c.String("unmatched-writes")}
	if c.String("config") == "" {
		over.UpstreamURL = anyStore
	}
	cfg, err := readConfig(c.String("config"), over)
	problems, ok := errors.AsType[*policies.Errors](err)
	if ok && over.UpstreamURL == "" && len(problems.Problems) == 1 && problems.Problems[0].Path == "upstream.url" {
		over.UpstreamURL = anyStore
		return readConfig(c.String("config"), over)
	}
	return cfg, err
}

func explainLive(c *cli.Context, q proxy.ExplainRequest) (*proxy.Explanation, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	remote, err := newRemote(c)
	if err != nil {
		return nil, err
	}
	e := new(proxy.Explanation)
	remote.absent = "is the proxy running? Leave --live out to ask the configuration alone"
	return e, remote.call(c.Context, http.MethodPost, "/v1/explain", bytes.NewReader(body), func(r io.Reader) error {
		return json.NewDecoder(r).Decode(e)
	})
}
