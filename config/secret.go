package config

import (
	"os"
	"reflect"
	"slices"
)

// Exposure says how another user than owners may know or change the secret in the file path, or returns "". Only a
// file of another owner than this user may be readable by its group, as the volumes of Kubernetes are.
func Exposure(path string, owners ...int) string {
	info, err := os.Stat(path)
	if err != nil { // reading it fails, too
		return ""
	}
	uid := reflect.Indirect(reflect.ValueOf(info.Sys())).FieldByName("Uid") // of a syscall.Stat_t
	if !uid.IsValid() {                                                     // Windows has other rights
		return ""
	}
	owner, others := int(uid.Uint()), os.FileMode(0o077)
	if owner != os.Getuid() {
		others = 0o027
	}
	switch {
	case !slices.Contains(owners, owner):
		return "belongs to another user"
	case info.Mode()&others != 0:
		return "may be read or changed by other users"
	}
	return ""
}
