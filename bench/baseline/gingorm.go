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

// plant is a row, and the body of a request: most teams have one type for both.
type plant struct {
	ID        int64     `json:"id" binding:"required" gorm:"primaryKey;autoIncrement:false"`
	Name      string    `json:"name" binding:"required,max=255"`
	Tag       *string   `json:"tag,omitempty" binding:"omitempty,max=255"`
	CreatedAt time.Time `json:"-"`
	UpdatedAt time.Time `json:"-"`
}

func (plant) TableName() string { return "plants" }

// ginGorm is Gin and GORM as their documentation starts with them.
func ginGorm(databaseURL, token string) (http.Handler, error) {
	db, err := openGorm(databaseURL, &gorm.Config{TranslateError: true})
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	e := gin.Default()
	plants(e.Group("/plants", bearer(token)), db)
	return e, nil
}

// ginGormTuned is the same with what GORM's page on performance says, and zap
// for the access log.
func ginGormTuned(databaseURL, token string) (http.Handler, error) {
	db, err := openGorm(databaseURL, &gorm.Config{TranslateError: true, SkipDefaultTransaction: true, PrepareStmt: true})
	if err != nil {
		return nil, err
	}
	log, err := zap.NewProduction()
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.Recovery(), accessLog(log))
	plants(e.Group("/plants", bearer(token)), db)
	return e, nil
}

func plants(r gin.IRoutes, db *gorm.DB) {
	r.POST("", create(db))
	r.GET("", list(db))
	r.GET("/:id", get(db))
}

// openGorm opens PostgreSQL with a pool of the size that served the baselines
// best, or SQLite with the settings of the service.
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
			c.JSON(http.StatusBadRequest, gin.H{"error": 400, "message": err.Error()})
			return
		}
		err := db.WithContext(c.Request.Context()).Create(&p).Error
		switch {
		case errors.Is(err, gorm.ErrDuplicatedKey):
			c.JSON(http.StatusConflict, gin.H{"error": 409, "message": "the id is taken"})
		case err != nil:
			_ = c.Error(err)
			c.JSON(http.StatusInternalServerError, gin.H{"error": 500, "message": "internal error"})
		default:
			c.Header("Location", "/plants/"+strconv.FormatInt(p.ID, 10))
			c.JSON(http.StatusOK, gin.H{"name": p.Name, "tag": p.Tag})
		}
	}
}

func get(db *gorm.DB) gin.HandlerFunc {
	return func(c *gin.Context) {
		var p plant
		err := db.WithContext(c.Request.Context()).First(&p, "id = ?", c.Param("id")).Error
		switch {
		case errors.Is(err, gorm.ErrRecordNotFound):
			c.JSON(http.StatusNotFound, gin.H{"error": 404, "message": "no such plant"})
		case err != nil:
			_ = c.Error(err)
			c.JSON(http.StatusInternalServerError, gin.H{"error": 500, "message": "internal error"})
		default:
			c.JSON(http.StatusOK, shown(&p))
		}
	}
}

// list counts its pages by offset, as most do.
func list(db *gorm.DB) gin.HandlerFunc {
	return func(c *gin.Context) {
		var query struct {
			Limit  int `form:"limit,default=50" binding:"min=1,max=1000"`
			Offset int `form:"offset"`
		}
		if err := c.ShouldBindQuery(&query); err != nil {
			c.JSON(http.StatusBadRequest, gin.H{"error": 400, "message": err.Error()})
			return
		}
		var found []plant
		if err := db.WithContext(c.Request.Context()).Order("id").Limit(query.Limit).Offset(query.Offset).Find(&found).Error; err != nil {
			_ = c.Error(err)
			c.JSON(http.StatusInternalServerError, gin.H{"error": 500, "message": "internal error"})
			return
		}
		page := make([]gin.H, len(found))
		for i := range found {
			page[i] = shown(&found[i])
		}
		c.JSON(http.StatusOK, page)
	}
}

func shown(p *plant) gin.H {
	return gin.H{"id": p.ID, "name": p.Name, "tag": p.Tag, "created_at": p.CreatedAt, "updated_at": p.UpdatedAt}
}

func bearer(token string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.GetHeader("Authorization") != "Bearer "+token {
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": 401, "message": "invalid token"})
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
