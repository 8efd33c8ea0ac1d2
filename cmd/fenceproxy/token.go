package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/policies/signed"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func tokenCommand() *cli.Command {
	return &cli.Command{
		Name:      "token",
		Usage:     "sign tokens, and check them, for policies with token.signed",
		UsageText: "fenceproxy token command [command options]",
		Description: `The side of the lock signs, with a key that the proxy knows, what a token is for and until when:
  fenceproxy token keygen --out lock.key
  fenceproxy token sign --key lock.key --resource rides/7 --token 34 --ttl 30s`,
		Subcommands: []*cli.Command{tokenKeygenCommand(), tokenSignCommand(), tokenVerifyCommand()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c.Command.Subcommands, "fenceproxy token", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

func tokenKeygenCommand() *cli.Command {
	return &cli.Command{
		Name:  "keygen",
		Usage: "make a key that signs tokens",
		Description: `One secret for both sides:
  fenceproxy token keygen --out lock.key

A pair, so that the proxy cannot sign: the lock signs with lock.pem, the proxy checks with lock.pem.pub:
  fenceproxy token keygen --algorithm EdDSA --out lock.pem

No file is overwritten.`,
		BashComplete: func(c *cli.Context) {
			if n := len(os.Args); n > 1 && os.Args[n-2] == "--algorithm" { // as urfave/cli asks for the last word
				fmt.Fprintln(c.App.Writer, strings.Join(signed.Algorithms(), "\n"))
				return
			}
			cli.DefaultCompleteWithFlags(c.Command)(c)
		},
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "algorithm", Value: string(signed.HS256), Usage: "make a key for `ALGORITHM`: " + strings.Join(signed.Algorithms(), " or ")},
			&cli.StringFlag{Name: "out", Usage: "write it to `FILE`, which only its owner can read", TakesFile: true},
		},
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			var a signed.Algorithm
			for _, name := range signed.Algorithms() {
				if strings.EqualFold(name, c.String("algorithm")) {
					a = signed.Algorithm(name)
				}
			}
			out := c.String("out")
			switch {
			case a == "":
				return usagef("--algorithm: %q is not one of %s", c.String("algorithm"), strings.Join(signed.Algorithms(), ", "))
			case out == "":
				return withHint(usagef("keygen needs a file to write to"), "fenceproxy token keygen --out lock.key")
			}
			signs, checks, err := signed.NewKey(a)
			if err != nil {
				return err
			}
			if err := writeNew(out, signs, 0o600); err != nil {
				return err
			}
			if a == signed.HS256 {
				fmt.Fprintf(c.App.Writer, "%s: for the lock, which signs, and for the proxy (token.signed.keys); whoever else has it can sign any token\n", out)
				return nil
			}
			if err := writeNew(out+".pub", checks, 0o644); err != nil {
				return errors.Join(err, os.Remove(out))
			}
			fmt.Fprintf(c.App.Writer, "%s: for the lock, which signs, and for nobody else\n%s.pub: for the proxy (token.signed.keys)\n", out, out)
			return nil
		},
	}
}

// writeNew writes a file that must not exist.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return withHint(fmt.Errorf("%s exists, and is not overwritten: tokens that it has signed would be refused", name), "choose another name, and give the proxy both files while keys change")
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func keyFlag() cli.Flag {
	return &cli.StringFlag{Name: "key", EnvVars: []string{"FENCEPROXY_TOKEN_KEY"}, Usage: "use the key in `FILE`, as keygen writes it", TakesFile: true}
}

func tokenSignCommand() *cli.Command {
	return &cli.Command{
		Name:  "sign",
		Usage: "print a signed token",
		Description: `  fenceproxy token sign --key lock.key --resource rides/7 --token 34 --ttl 30s
  fenceproxy token sign --key lock.key --prefix rides/ --token 34

A resource is written as "fenceproxy explain" prints it. With a lease from the proxy itself:
  fenceproxy lease run rides/7 -- sh -c 'curl -T new.json -H "Fencing-Token: $(fenceproxy token sign --key lock.key \
    --resource rides/7 --token "$FENCING_TOKEN")" http://127.0.0.1:8080/rides/7'`,
		Flags: []cli.Flag{
			keyFlag(),
			&cli.StringSliceFlag{Name: "resource", Usage: "sign it for `RESOURCE`; may be repeated"},
			&cli.StringFlag{Name: "prefix", Usage: "sign it for the resource `PREFIX` and all below"},
			&cli.StringFlag{Name: "token", Usage: "sign the fencing `TOKEN`"},
			&cli.DurationFlag{Name: "ttl", Value: 30 * time.Second, Usage: "have it end after `DURATION`, in whole seconds; no longer than the lease runs"},
		},
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			claims := signed.Claims{Resources: c.StringSlice("resource"), Prefix: c.String("prefix"), Token: c.String("token"), Expires: time.Now().Add(c.Duration("ttl"))}
			switch {
			case claims.Token == "":
				return withHint(usagef("sign needs a token"), "give the number that came with the lease: --token 34")
			case !takes(claims.Token):
				return withHint(usagef("--token: no format takes %q", claims.Token), "give the number that came with the lease, without signs, spaces and commas")
			case len(claims.Resources) > 0 && claims.Prefix != "":
				return usagef("sign takes --resource or --prefix, not both")
			case len(claims.Resources) == 0 && claims.Prefix == "":
				return withHint(usagef("sign needs either --resource or --prefix"), `"fenceproxy explain" prints the resource of a request`)
			case c.Duration("ttl") < time.Second:
				return usagef("--ttl: %s is shorter than a second, in which dates of tokens count", c.Duration("ttl"))
			}
			key, err := keyOf(c)
			if err != nil {
				return err
			}
			text, err := key.Sign(claims)
			if err != nil {
				return fmt.Errorf("sign the token: %w", err)
			}
			_, err = fmt.Fprintln(c.App.Writer, text)
			return err
		},
	}
}

// takes reports whether some format takes the token. The id of a hold may begin with a sign; a number with one is a slip.
func takes(token string) bool {
	if digits := strings.TrimLeft(token, "+-"); digits != token {
		if _, err := fencing.Decimal.Parse(digits); err == nil {
			return false
		}
	}
	return slices.ContainsFunc(fencing.FormatNames(), func(name string) bool {
		f, err := fencing.ParseFormat(name)
		if err == nil {
			_, err = f.Parse(token)
		}
		return err == nil
	})
}

func tokenVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "say what a signed token is for, or why it is refused",
		ArgsUsage: "JWS",
		Description: `  fenceproxy token verify --key lock.key --resource rides/7 "$TOKEN"

With - it is read from standard input, so that no other process of this machine sees it. Exit code 1 for a token that is refused.`,
		Flags: []cli.Flag{
			keyFlag(),
			&cli.StringFlag{Name: "resource", Usage: "ask whether it is for `RESOURCE` too"},
		},
		Action: func(c *cli.Context) error {
			args, err := arguments(c)
			if err != nil {
				return err
			}
			if len(args) != 1 {
				return withHint(usagef("verify needs one signed token, and got %s", count(len(args), "argument")), "see fenceproxy token verify --help")
			}
			key, err := keyOf(c)
			if err != nil {
				return err
			}
			text := args[0]
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(c.App.Reader, 2*signed.MaxLen))
				if err != nil {
					return fmt.Errorf("read the token: %w", err)
				}
				text = strings.TrimSpace(string(b))
			}
			return verifyToken(c, key, text)
		},
	}
}

func verifyToken(c *cli.Context, key signed.Key, text string) error {
	v, err := signed.NewVerifier(key.Algorithm(), key)
	if err != nil {
		return err
	}
	now := time.Now()
	claims, err := v.Verify(text, now)
	if claims != nil {
		w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "signed\t%s\ntoken\t%s\ncovers\t%s\n", v.Algorithm(), claims.Token, claims.Scope())
		if !claims.NotBefore.IsZero() {
			fmt.Fprintf(w, "from\t%s\n", claims.NotBefore.UTC().Format(time.RFC3339))
		}
		fmt.Fprintf(w, "until\t%s\n", claims.Expires.UTC().Format(time.RFC3339))
		if werr := w.Flush(); werr != nil {
			return werr
		}
	}
	if err != nil {
		return fmt.Errorf("the token is refused: %w", err)
	}
	if r := c.String("resource"); r != "" && !claims.Covers(r) {
		return fmt.Errorf("the token is refused: it is for %s, and not for %q", claims.Scope(), r)
	}
	return nil
}

// keyOf reads the key file of --key.
func keyOf(c *cli.Context) (signed.Key, error) {
	file := c.String("key")
	if file == "" {
		return signed.Key{}, withHint(usagef("%s needs a key", c.Command.Name), "give --key FILE; fenceproxy token keygen makes one")
	}
	data, _, err := readKey(file)
	if err != nil {
		return signed.Key{}, fmt.Errorf("--key: %w", err)
	}
	key, err := signed.ParseKey(data)
	if err != nil {
		return key, fmt.Errorf("--key: %s: %w", file, err)
	}
	return key, nil
}

var _ policies.KeyReader = readKey

// readKey reads a key file, and says who can.
func readKey(name string) ([]byte, fs.FileMode, error) {
	const most = 64 << 10
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	mode := info.Mode().Perm()
	if runtime.GOOS == "windows" { // where they say nothing of who can read it
		mode = 0
	}
	return data, mode, err
}
