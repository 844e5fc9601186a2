package providers

import (
	"regexp"
	"sync"
)

// form is a regular expression that is compiled at its first use: counted repetitions take milliseconds and memory, also of
// servers without environments.
type form struct{ compile func() *regexp.Regexp }

func newForm(expression string) form {
	return form{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// MatchString reports whether a text has the form.
func (f form) MatchString(text string) bool { return f.compile().MatchString(text) }
