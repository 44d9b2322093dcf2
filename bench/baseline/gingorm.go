package main

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/libtnb/sqlite"
	"go.uber.org/zap"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// plant is both the row and the request, as in most services.
type plant struct {
	ID        int64     `json:"id" binding:"required" gorm:"primaryKey;autoIncrement:false"`
	Name      string    `json:"name" binding:"required,max=255"`
	Tag       *string   `json:"tag,omitempty" binding:"omitempty,max=255"`
	CreatedAt time.Time `json:"-"`
	UpdatedAt time.Time `json:"-"`
}

func (plant) TableName() string { return "plants" }

func (p *plant) response() gin.H {
	return gin.H{"id": p.ID, "name": p.Name, "tag": p.Tag, "created_at": p.CreatedAt, "updated_at": p.UpdatedAt}
}

// ginGorm follows the first pages of Gin's and GORM's documentation.
func ginGorm(databaseURL, token string) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	return routes(gin.Default(), databaseURL, token, &gorm.Config{TranslateError: true})
}

// tunedGinGorm follows GORM's page on performance, too, and logs with zap.
func tunedGinGorm(databaseURL, token string) (http.Handler, error) {
	log, err := zap.NewProduction()
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.Recovery(), accessLog(log))
	return routes(e, databaseURL, token, &gorm.Config{TranslateError: true, SkipDefaultTransaction: true, PrepareStmt: true})
}

func routes(e *gin.Engine, databaseURL, token string, config *gorm.Config) (http.Handler, error) {
	db, err := openGorm(databaseURL, config)
	if err != nil {
		return nil, err
	}
	r := e.Group("/plants", bearer(token))
	r.POST("", create(db))
	r.GET("", list(db))
	r.GET("/:id", get(db))
	return e, nil
}

// openGorm opens PostgreSQL with poolSize connections, or SQLite with the settings
// of the service.
func openGorm(databaseURL string, config *gorm.Config) (*gorm.DB, error) {
	connections, dialector := poolSize, postgres.Open(databaseURL)
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		connections = 1
		dialector = sqlite.Open("file:" + path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	}
	db, err := gorm.Open(dialector, config)
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return db, nil
}

func create(db *gorm.DB) gin.HandlerFunc {
	return func(c *gin.Context) {
		var p plant
		if err := c.ShouldBindJSON(&p); err != nil {
			respondError(c, http.StatusBadRequest, err.Error())
			return
		}
		if err := db.WithContext(c.Request.Context()).Create(&p).Error; err != nil {
			fail(c, err)
			return
		}
		c.Header("Location", "/plants/"+strconv.FormatInt(p.ID, 10))
		c.JSON(http.StatusOK, gin.H{"name": p.Name, "tag": p.Tag})
	}
}

func get(db *gorm.DB) gin.HandlerFunc {
	return func(c *gin.Context) {
		var p plant
		if err := db.WithContext(c.Request.Context()).First(&p, "id = ?", c.Param("id")).Error; err != nil {
			fail(c, err)
			return
		}
		c.JSON(http.StatusOK, p.response())
	}
}

// list pages by offset, as in most services.
func list(db *gorm.DB) gin.HandlerFunc {
	return func(c *gin.Context) {
		var query struct {
			Limit  int `form:"limit,default=50" binding:"min=1,max=1000"`
			Offset int `form:"offset"`
		}
		if err := c.ShouldBindQuery(&query); err != nil {
			respondError(c, http.StatusBadRequest, err.Error())
			return
		}
		var found []plant
		if err := db.WithContext(c.Request.Context()).Order("id").Limit(query.Limit).Offset(query.Offset).Find(&found).Error; err != nil {
			fail(c, err)
			return
		}
		page := make([]gin.H, len(found))
		for i := range found {
			page[i] = found[i].response()
		}
		c.JSON(http.StatusOK, page)
	}
}

func fail(c *gin.Context, err error) {
	switch {
	case errors.Is(err, gorm.ErrDuplicatedKey):
		respondError(c, http.StatusConflict, "the id is taken")
	case errors.Is(err, gorm.ErrRecordNotFound):
		respondError(c, http.StatusNotFound, "no such plant")
	default:
		_ = c.Error(err)
		respondError(c, http.StatusInternalServerError, "internal error")
	}
}

func respondError(c *gin.Context, status int, message string) {
	c.AbortWithStatusJSON(status, gin.H{"error": status, "message": message})
}

func bearer(token string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.GetHeader("Authorization") != "Bearer "+token {
			respondError(c, http.StatusUnauthorized, "invalid token")
		}
	}
}

func accessLog(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		c.Next()
		log.Info("request", zap.String("method", c.Request.Method), zap.String("path", c.Request.URL.Path),
			zap.Int("status", c.Writer.Status()), zap.Duration("duration", time.Since(start)))
	}
}
