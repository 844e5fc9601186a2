package selfupdate

import "os"

// Underway returns the versions of an update that was begun and has not ended; ok is
// false if there is none, or none that can be read.
func (i Installation) Underway() (from, to string, ok bool) {
	root, err := os.OpenRoot(i.Root)
	if err != nil {
		return "", "", false
	}
	defer func() { _ = root.Close() }()
	j, err := readJournal(root)
	if err != nil || j == nil {
		return "", "", false
	}
	return j.From, j.To, true
}
