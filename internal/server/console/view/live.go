package view

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/a-h/templ"
)

// Elements collects the live elements of a page while it is rendered, in their order.
type Elements struct {
	IDs  []string
	HTML map[string][]byte
}

type elementsKey struct{}

// Collect returns a context in which rendering adds live elements to e.
func Collect(ctx context.Context, e *Elements) context.Context {
	e.HTML = map[string][]byte{}
	return context.WithValue(ctx, elementsKey{}, e)
}

// Collecting reports whether rendering only collects live elements.
func Collecting(ctx context.Context) bool { return ctx.Value(elementsKey{}) != nil }

// Live is an element whose children are sent to open pages when they change. The id must be unique
// on the page. Live elements must not contain each other.
func Live(id string) templ.Component { return live("div", id, "") }

// LiveAs is [Live] with another element than div and with classes.
func LiveAs(tag, id, class string) templ.Component {
	return live(tag, id, ` class="`+templ.EscapeString(class)+`"`)
}

// LiveRegion is [LiveAs] with a label for screen readers.
func LiveRegion(tag, id, class, label string) templ.Component {
	return live(tag, id, ` class="`+templ.EscapeString(class)+`" aria-label="`+templ.EscapeString(label)+`"`)
}

// LiveHeld is [Live] for a list, whose rows have ids. Rows change in their places, and new ones wait until the visitor wants to
// see them, if the page has an element with the attribute data-new-rows for the button that shows them.
func LiveHeld(id string) templ.Component { return live("div", id, " data-held") }

// LiveStatus is [Live] for a status, which screen readers announce when it changes.
func LiveStatus(id string) templ.Component { return live("div", id, ` role="status"`) }

func live(tag, id, attributes string) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		var buf bytes.Buffer
		fmt.Fprintf(&buf, `<%s id="%s" data-live%s>`, tag, templ.EscapeString(id), attributes)
		if err := templ.GetChildren(ctx).Render(templ.ClearChildren(ctx), &buf); err != nil {
			return err
		}
		fmt.Fprintf(&buf, `</%s>`, tag)
		if e, ok := ctx.Value(elementsKey{}).(*Elements); ok {
			e.IDs = append(e.IDs, id)
			e.HTML[id] = buf.Bytes()
		}
		_, err := w.Write(buf.Bytes())
		return err
	})
}
