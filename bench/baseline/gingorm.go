package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/libtnb/sqlite"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// ginGorm follows GORM's page on performance: it has no transaction for each write, prepares its
// statements, and logs nothing. It opens SQLite with the settings of the service.
func (a *api) ginGorm(databaseURL string) (http.Handler, error) {
	connections, dialector := poolSize, postgres.Open(databaseURL)
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		connections = 1
		dialector = sqlite.Open("file:" + path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	}
	db, err := gorm.Open(dialector, &gorm.Config{
		TranslateError: true, SkipDefaultTransaction: true, PrepareStmt: true, Logger: logger.Discard,
	})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)

	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.Recovery())
	for pattern, do := range map[string]func(tx *gorm.DB, p *plant) *gorm.DB{
		"POST /plants":    func(tx *gorm.DB, in *plant) *gorm.DB { return tx.Create(in) },
		"GET /plants/:id": func(tx *gorm.DB, out *plant) *gorm.DB { return tx.First(out) },
		"PUT /plants/:id": func(tx *gorm.DB, in *plant) *gorm.DB {
			return tx.Clauses(clause.OnConflict{
				Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name", "tag", "updated_at"}),
			}, clause.Returning{}).Create(in)
		},
		// This does not clear a tag: GORM does not update fields with their zero value.
		"PATCH /plants/:id":  func(tx *gorm.DB, in *plant) *gorm.DB { return tx.Clauses(clause.Returning{}).Updates(in) },
		"DELETE /plants/:id": func(tx *gorm.DB, in *plant) *gorm.DB { return tx.Delete(in) },
	} {
		method, path, _ := strings.Cut(pattern, " ")
		run := func(ctx context.Context, p *plant) error {
			result := do(db.WithContext(ctx), p)
			if result.Error == nil && result.RowsAffected == 0 {
				return gorm.ErrRecordNotFound
			}
			return result.Error
		}
		e.Handle(method, path, func(c *gin.Context) { a.serve(run, c.Writer, c.Request, c.Param("id"), c.ShouldBindJSON) })
	}
	return e, nil
}
