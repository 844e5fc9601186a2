package stack

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/a-h/templ"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"workflowagent/internal/server/console/values"
	"workflowagent/internal/server/stacks/changes"
)

// maxReadme bounds the text of a README, in bytes.
const maxReadme = 64 << 10

// markdown renders a README. It leaves out HTML, because the renderer's option for it is off.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(linkRules{}, 100))),
)

// linkRules changes the links of a README: they must not lead to scripts or reveal the page, and
// images become links, because the page must load nothing from elsewhere. Headings become lower than
// those of the page.
type linkRules struct{}

// Transform implements [parser.ASTTransformer].
func (linkRules) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	var images []*ast.Image
	var autos []*ast.AutoLink
	// The walker itself returns no error.
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			n.Level = min(6, n.Level+2)
		case *ast.Image:
			images = append(images, n)
		case *ast.AutoLink:
			autos = append(autos, n)
		case *ast.Link:
			n.Destination = safeLink(n.Destination)
			n.SetAttributeString("rel", []byte("noopener noreferrer nofollow"))
		}
		return ast.WalkContinue, nil
	})
	for _, image := range images {
		link := ast.NewLink()
		link.Destination = safeLink(image.Destination)
		link.SetAttributeString("rel", []byte("noopener noreferrer nofollow"))
		for child := image.FirstChild(); child != nil; {
			next := child.NextSibling()
			link.AppendChild(link, child)
			child = next
		}
		if !link.HasChildren() {
			link.AppendChild(link, ast.NewString([]byte("image")))
		}
		image.Parent().ReplaceChild(image.Parent(), image, link)
	}
	for _, auto := range autos {
		target := auto.URL(reader.Source())
		if string(safeLink(target)) == "#" {
			auto.Parent().ReplaceChild(auto.Parent(), auto, ast.NewString(target))
			continue
		}
		auto.SetAttributeString("rel", []byte("noopener noreferrer nofollow"))
	}
}

// safeLink returns the target of a link, or "#" unless it is an absolute URL of a web page or mail
// address.
func safeLink(target []byte) []byte {
	u, err := url.Parse(strings.TrimSpace(string(target)))
	if err != nil {
		return []byte("#")
	}
	switch u.Scheme {
	case "http", "https", "mailto":
		return target
	default:
		return []byte("#")
	}
}

// readme returns a stack's description and README as a component, or nil if both are empty.
func readme(description, source string) (templ.Component, error) {
	source = strings.TrimSpace(strings.ToValidUTF8(source, ""))
	if len(source) > maxReadme {
		source = strings.ToValidUTF8(source[:maxReadme], "") + "…"
	}
	if source == "" && description == "" {
		return nil, nil //nolint:nilnil // nothing to show
	}
	var out bytes.Buffer
	source = cmp.Or(source, escapeMarkdown(description))
	if err := markdown.Convert([]byte(changes.Plain(source)), &out); err != nil {
		return nil, fmt.Errorf("rendering a README: %w", err)
	}
	return templ.Raw(out.String()), nil
}

// escapeMarkdown returns text that renders as itself.
func escapeMarkdown(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune("\\`*_{}[]()<>#+-.!|~&:/@", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// readmeOf returns the README among a stack's outputs: the output "readme", unless it is secret.
func readmeOf(outputs []values.Value) string {
	for _, o := range outputs {
		if o.Name == "readme" && !o.Secret {
			return o.Text
		}
	}
	return ""
}
