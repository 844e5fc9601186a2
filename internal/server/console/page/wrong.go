package page

import "strings"

// Wrong is what is wrong with a form: texts by the names of its fields. That of the form as a whole has the name "".
type Wrong map[string]string

// About is a word with which a problem says that it is about a field. Label is what visitors read instead of the word; ""
// keeps it.
type About struct{ Word, Field, Label string }

// Locate puts a problem next to the field that it is about: that of the first word that it contains.
func Locate(problem string, words ...About) Wrong {
	if problem == "" {
		return nil
	}
	for _, w := range words {
		if !strings.Contains(problem, w.Word) {
			continue
		}
		if w.Label != "" {
			problem = strings.ReplaceAll(problem, w.Word, w.Label)
		}
		return Wrong{w.Field: problem}
	}
	return Wrong{"": problem}
}
