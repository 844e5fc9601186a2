// Package installer has the tests of install.sh: they run the repository's script under every shell
// of the machine, against small mirrors that they create and sign.
package installer
