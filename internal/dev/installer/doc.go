// Package installer has the tests of install.sh: they run the repository's script under every shell
// of the machine against small mirrors that they make and sign themselves.
package installer
