package policies_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// configKeys collects the names that the loader knows from its own source: the arguments of section(...) and settingKeys.
func configKeys(t *testing.T) map[string]bool {
	keys := map[string]bool{}
	literals := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				name, _ := strconv.Unquote(lit.Value)
				keys[name] = true
			}
			return true
		})
	}
	files, _ := filepath.Glob("*.go")
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "section" {
					for _, arg := range n.Args {
						literals(arg)
					}
				}
			case *ast.ValueSpec:
				if n.Names[0].Name == "settingKeys" {
					literals(n)
				}
			}
			return true
		})
	}
	return keys
}

func TestEveryKeyIsInTheReferenceAndTheFullExample(t *testing.T) {
	keys := configKeys(t)
	if len(keys) < 50 || !keys["listen"] || !keys["query_identity"] || !keys["settle"] {
		t.Fatalf("only %d keys found: %v", len(keys), keys)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for key := range keys {
		if !strings.Contains(string(readme), "`"+key+"`") && !strings.Contains(string(readme), "`"+key+".") && !strings.Contains(string(readme), "."+key+"`") {
			t.Errorf("README.md does not name %s", key)
		}
		if !strings.Contains(string(full), key+":") {
			t.Errorf("testdata/full.yaml does not use %s", key)
		}
	}
}
