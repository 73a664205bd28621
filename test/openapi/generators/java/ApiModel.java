/** What generated models name, and Debian does not have. */
package io.swagger.annotations;

public @interface ApiModel {
  String description() default "";

  String value() default "";
}
