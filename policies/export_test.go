package policies

// CompileTemplate reports what is wrong with a template for the pattern, or "".
func CompileTemplate(path, text string) string {
	id := preset("http")
	p, reason := compilePattern(path, &id)
	if reason != "" {
		return reason
	}
	_, reason, _ = compileTemplate(text, p)
	return reason
}
